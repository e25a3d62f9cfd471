// Chains of lives of one run, in virtual time: holders that are interrupted, killed, or stand still for minutes
// and come back; standbys that wait for them; an operator who takes the run over when nobody makes progress.
// The machines share a run directory, or each has a quick disk of its own and HOME is shared.
//
// The store, the claims, the states, the mirror, its notes in HOME and the fetch are the real ones. A standby
// does here what docs/standby.md says.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "holdfast/base/log.h"
#include "holdfast/io/file_system.h"
#include "holdfast/mirror/home_notes.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/run_state.h"
#include "machine.h"
#include "support/fault_file_system.h"
#include "support/nightly.h"
#include "support/store_life.h"
#include "virtual_time.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestRun = 24h;
constexpr Duration kLook = 2s;  // of a standby, at the run
constexpr Duration kTakeoverAfter = 60s;
constexpr std::int64_t kLastStep = 40;
constexpr int kTroubledLives = 8;  // of a chain; the later ones end by themselves

struct Counts {
  std::int64_t lives = 0;
  std::int64_t handed_over = 0;  // by a recorded end
  std::int64_t by_silence = 0;
  std::int64_t taken_over = 0;  // by the operator
  std::int64_t lost_races = 0;  // standbys that went on waiting
  std::int64_t zombies = 0;     // came back after minutes
  std::int64_t fenced = 0;
  std::int64_t acknowledged = 0;
  std::int64_t older_at_hand = 0;  // a newer checkpoint than the one at hand was there after the claim
};

// How a life ends, unless the run is complete before.
enum class Trouble { none, interrupted, killed, stands_still };

class Chain {
 public:
  // `blind`: with a HOME, a standby claims as a machine that just starts, whatever lies there by then.
  Chain(int seed, bool two_tiers, Counts& counts, bool blind = false)
      : random_(static_cast<std::mt19937::result_type>(seed)),
        two_tiers_(two_tiers),
        blind_(blind),
        counts_(counts) {
    where_ = std::string(two_tiers ? "two tiers" : "one directory") + ", seed " + std::to_string(seed);
  }

  void run() {
    boot(0s, false);
    boot(any(1s, 60s), true);
    if (draw(2) == 0) boot(any(1s, 60s), true);
    time_.start(60s, [this] { operate(); });
    const bool ended = time_.run(kLongestRun);
    if (blind_) return;
    EXPECT_TRUE(ended) << where_ << ": stuck";
    EXPECT_TRUE(complete_) << where_ << ": not complete";
  }
  int early() const { return early_; }

 private:
  // What the others can see of a life, and what is done to it.
  struct Body {
    Body(Chain& of, FileSystem& disk) : chain(of), files(disk) {
      files.set_hook([this](const Operation& operation) { before(operation); });
    }
    void before(const Operation& operation) {
      if (dead) throw Killed();
      if (!operation.mutating && operation.kind != Op::list) return;
      try {
        if (trouble != Trouble::none && trouble != Trouble::interrupted && until-- == 0) {
          if (trouble == Trouble::killed) throw Killed();
          chain.counts_.zombies += holds ? 1 : 0;
          chain.time_.sleep(chain.any(3min, 20min));
        }
        chain.time_.sleep(chain.any(0s, 20ms));
      } catch (const Killed&) {
        dead = true;
        throw;
      }
    }
    Chain& chain;
    FaultFileSystem files;
    Trouble trouble = Trouble::none;
    int until = 0;  // so many operations
    bool holds = false;
    bool dead = false;
  };
  struct Begun {
    FileId start;
    Ancestry ancestry;
  };

  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  Duration any(Duration from, Duration to) {
    return from + std::chrono::milliseconds(draw(static_cast<int>((to - from) / 1ms)));
  }

  void boot(Duration after, bool standby) {
    ++counts_.lives;
    const bool troubled = ++booted_ <= kTroubledLives;
    const auto trouble = troubled ? static_cast<Trouble>(draw(4)) : Trouble::none;
    time_.start(after, [this, standby, trouble] {
      MemoryFileSystem quick;
      Body body(*this, safe_);
      body.trouble = trouble;
      body.until = 20 + draw(200);
      try {
        if (two_tiers_) {
          live_with_home(body, quick, standby);
        } else {
          live(body, standby);
        }
      } catch (const SupersededError&) {
        ++counts_.fenced;
      } catch (const Killed&) {
      } catch (const std::exception& error) {
        ADD_FAILURE() << where_ << ": " << error.what();
      }
      // Capacity comes back.
      if (!complete_ && !testing::Test::HasFailure()) boot(any(10s, 90s), true);
    });
  }

  // Whoever sees that nobody makes progress.
  void operate() {
    try {
      std::int64_t before = counts_.acknowledged;
      while (!complete_ && !testing::Test::HasFailure()) {
        time_.sleep(5min);
        if (complete_ || std::exchange(before, counts_.acknowledged) != before) continue;
        ++counts_.taken_over;
        two_tiers_ ? take_home_over() : take_over();
      }
    } catch (const Killed&) {
    }
  }
  // holdfast takeover
  void take_over() {
    const auto run = safe_.open_directory(kRun, false);
    if (!run) return;
    const AttemptNumber next = highest_attempt(*run) + 1;
    const LastWord word = last_word(*run);
    if (word.attempt == 0 || (word.state && word.state->phase == RunPhase::interrupted)) return;
    Life life(safe_, {.allow_fresh = true});
    life.store.claim("takeover", next);
    said_end_.insert(next);
    life.store.write_run_state({.phase = RunPhase::interrupted, .copy_of = word.attempt});
  }

  // What an older holder deletes meanwhile is looked for again.
  template <class Look>
  static bool looking(const Look& look) {
    try {
      look();
      return true;
    } catch (const IoError&) {
      return false;
    }
  }

  // One directory.

  // The number to claim; nullopt: the run is complete.
  std::optional<AttemptNumber> stand_by(Body& body, Life& life, std::optional<std::string>& at_hand) {
    const bool by_silence = draw(2) == 0;
    std::string trace;
    Duration changed = time_.now();
    for (;; time_.sleep(kLook)) {
      const auto run = body.files.open_directory(kRun, false);
      if (!run) continue;
      const AttemptNumber highest = highest_attempt(*run);
      const LastWord word = last_word(*run);
      if (word.state && word.state->phase == RunPhase::complete) {
        complete_ = true;
        return std::nullopt;
      }
      if (word.state && word.state->phase == RunPhase::interrupted) return highest + 1;
      const std::string now = std::to_string(highest) + (word.state ? to_json(*word.state) : "");
      if (std::exchange(trace, now) != now) changed = time_.now();
      if (by_silence && time_.now() - changed >= kTakeoverAfter) {
        silent_.insert(highest);
        return highest + 1;
      }
      looking([&] {
        if (const auto newest = life.store.preflight().newest) at_hand = newest->name;
      });
    }
  }

  void live(Body& body, bool standby) {
    for (;;) {
      std::optional<std::string> at_hand;
      AttemptNumber only = 0;
      if (standby) {
        Life looking(body.files);
        const auto number = stand_by(body, looking, at_hand);
        if (!number) return;
        only = *number;
      }
      Life life(body.files);
      life.store.preflight();
      try {
        life.store.claim({}, only);
      } catch (const RefusedError&) {
        ++counts_.lost_races;
        continue;
      }
      if (standby) claimed_by_standby(only);
      const auto newest = life.recover().newest;
      if (at_hand && newest && newest->name != *at_hand) ++counts_.older_at_hand;
      begin(body, life.store.attempt(), newest ? FileId{newest->attempt, newest->step} : FileId{}, life);
      return train(body, life);
    }
  }

  void train(Body& body, Life& life) {
    const AttemptNumber attempt = life.store.attempt();
    const auto say = [&](RunPhase phase) {
      const std::int64_t durable = life.step == 0 ? -1 : life.step;
      life.store.write_run_state({.phase = phase, .step = life.step, .durable_step = durable});
    };
    say(RunPhase::running);
    for (int saves = 0; life.step < kLastStep; ++saves) {
      if (body.trouble == Trouble::interrupted && saves == 3) {
        said_end_.insert(attempt);
        return say(RunPhase::interrupted);
      }
      time_.sleep(any(1s, 10s));
      life.save(life.step + 1 + draw(4));
      acknowledge({.attempt = attempt, .step = life.step});
      say(RunPhase::running);
      life.store.apply_retention();
    }
    say(RunPhase::complete);
    complete_ = true;
  }

  // Two tiers.

  void live_with_home(Body& body, FileSystem& quick, bool standby) {
    Machine machine(quick, body.files);
    HolderNotes notes(*machine.home);
    std::optional<FileId> at_hand;
    std::optional<AttemptNumber> claimed = 0;
    if (standby) claimed = stand_by_at_home(machine, at_hand);
    if (!claimed) return;
    std::optional<PreparedStart> prepared;
    while (!looking([&] { prepared = machine.prepare(*claimed); })) time_.sleep(kLook);
    const PreparedStart& start = *prepared;
    EXPECT_EQ(machine.start_trainer(), start.attempt) << where_;
    if (at_hand && start.newest && *start.newest != *at_hand) ++counts_.older_at_hand;
    begin(body, start.attempt, start.newest.value_or(FileId{}), machine);
    // What its mirror does.
    const auto say = [&](RunPhase phase) {
      machine.trainer->write_run_state({.phase = phase, .step = machine.step});
      const HolderNotes::News news{
          .covers = machine.mirror.record().claims.back(), .awaits = start.attempt, .all_home = true};
      if (phase == RunPhase::interrupted) said_end_.insert(news.covers);
      notes.exchange(*machine.files.open_directory(kDir, true), news, machine.clock);
    };
    say(RunPhase::running);
    for (int saves = 0; machine.step < kLastStep; ++saves) {
      if (body.trouble == Trouble::interrupted && saves == 3) return say(RunPhase::interrupted);
      time_.sleep(any(1s, 10s));
      const FileId saved = machine.save(machine.step + 1 + draw(4));
      machine.bring_home();
      if (machine.mirror.record().newest == saved) acknowledge(saved);
    }
    say(RunPhase::complete);
    complete_ = true;
  }

  // The number that it has claimed; nullopt: the run is complete.
  std::optional<AttemptNumber> stand_by_at_home(Machine& machine, std::optional<FileId>& at_hand) {
    const bool by_silence = draw(2) == 0;
    std::string trace;
    Duration changed = time_.now();
    for (;; time_.sleep(kLook)) {
      HomeWord word;
      if (!looking([&] { word = home_word(*machine.home); })) continue;
      const auto said = [&](RunPhase phase) { return word.holder && word.holder->phase == phase; };
      if (said(RunPhase::complete)) return std::nullopt;
      const std::string now =
          std::to_string(word.highest) + word.newest + (word.holder ? to_json(*word.holder) : "");
      if (std::exchange(trace, now) != now) changed = time_.now();
      const bool silent = by_silence && word.highest != 0 && time_.now() - changed >= kTakeoverAfter;
      if (silent) silent_.insert(word.highest);
      if (silent || said(RunPhase::interrupted)) {
        const AttemptNumber number =
            blind_ ? machine.home->claim(1) : machine.home->claim_after(word.highest);
        if (number != 0) {
          claimed_by_standby(number);
          return number;
        }
        ++counts_.lost_races;
      }
      looking([&] { read_ahead(machine, at_hand); });
    }
  }

  // holdfast takeover HOME
  void take_home_over() {
    MemoryFileSystem quick;
    Machine machine(quick, safe_);
    const HomeWord word = home_word(*machine.home);
    if (word.highest == 0 || (word.holder && is_end(word.holder->phase))) return;
    const AttemptNumber next = machine.home->claim_after(word.highest);
    if (next == 0) return;
    said_end_.insert(next);
    tell_holder(*machine.home, {.phase = RunPhase::interrupted}, next);
  }

  // What a standby has on its quick disk when it takes over may be old.
  static void read_ahead(Machine& machine, std::optional<FileId>& at_hand) {
    const std::vector<HomeFile> there = machine.home->list();
    if (there.empty() || at_hand == there.front().id) return;
    std::vector<std::byte> bytes;
    machine.home->read(there.front(), [&](std::span<const std::byte> more) {
      bytes.insert(bytes.end(), more.begin(), more.end());
    });
    at_hand = there.front().id;
    const auto run = machine.files.open_directory(kDir, true);
    const auto file = run->open(checkpoint_name(*at_hand), OpenMode::create);
    if (!file) return;
    file->write_at(bytes, 0);
    file->sync();
    file->close();
    run->sync();
  }

  // What must hold.

  void claimed_by_standby(AttemptNumber number) {
    const bool said = said_end_.contains(number - 1);
    ++(said ? counts_.handed_over : counts_.by_silence);
    early_ += said || silent_.contains(number - 1) ? 0 : 1;
    EXPECT_TRUE(blind_ || early_ == 0)
        << where_ << ": a standby claimed " << number << ", and nobody's end was recorded";
  }
  void begin(Body& body, AttemptNumber attempt, FileId start, const History& history) {
    body.holds = true;
    const auto [at, first] = begun_.emplace(attempt, Begun{start, history.ancestry});
    EXPECT_TRUE(first) << where_ << ": two hold the run as attempt " << attempt;
    if (newest_) expect_known(*newest_, at->first, at->second);
  }
  void acknowledge(FileId saved) {
    ++counts_.acknowledged;
    newest_ = saved;
    // A holder that comes back after a hand-over: two would hold the run.
    for (auto later = begun_.upper_bound(saved.attempt); later != begun_.end(); ++later) {
      expect_known(saved, later->first, later->second);
    }
  }
  void expect_known(FileId saved, AttemptNumber attempt, const Begun& begun) {
    EXPECT_TRUE(in_history(saved, begun.start, begun.ancestry))
        << where_ << ": " << checkpoint_name(saved) << " was acknowledged, and attempt " << attempt
        << " goes on from " << checkpoint_name(begun.start);
  }

  std::mt19937 random_;
  const bool two_tiers_;
  const bool blind_;
  Counts& counts_;
  std::string where_;
  MemoryFileSystem safe_;
  std::optional<FileId> newest_;  // that was acknowledged
  std::map<AttemptNumber, Begun> begun_;
  std::set<AttemptNumber> said_end_;
  std::set<AttemptNumber> silent_;
  int booted_ = 0;
  int early_ = 0;  // claims of standbys while nobody's end was recorded
  bool complete_ = false;
  VirtualTime time_;  // last: its processes use all others
};

class StandbyLives : public testing::TestWithParam<bool> {
 protected:
  StandbyLives() { set_log_level(LogLevel::off); }
};

TEST_P(StandbyLives, LoseNothing) {
  const bool two_tiers = GetParam();
  const int chains = (nightly() ? 2500 : 60) / kSlower;
  Counts all;
  for (int seed = 0; seed < chains && !HasFailure(); ++seed) Chain(seed, two_tiers, all).run();
  const auto text = [](std::int64_t count, const char* what) { return ", " + std::to_string(count) + what; };
  const std::string counts =
      text(all.handed_over, " handed over") + text(all.by_silence, " lost in silence") +
      text(all.taken_over, " taken over by a person") + text(all.lost_races, " races") +
      text(all.zombies, " zombies") + text(all.fenced, " fenced off") + text(all.acknowledged, " saves") +
      text(all.older_at_hand, " with an older file at hand");
  std::printf("standbys: %s: %lld lives in %d runs%s\n", two_tiers ? "two tiers" : "one directory",
              static_cast<long long>(all.lives), chains, counts.c_str());
  EXPECT_GT(all.lives, 3 * chains);
  // The few runs of a sanitizer need not meet everything.
  if (kSlower == 1) {
    EXPECT_GT(all.handed_over, chains / 4);
    EXPECT_GT(all.zombies, chains / 4);
    EXPECT_GT(all.older_at_hand, 0);
  }
}

// The loser of two standbys would take the run from the winner.
TEST(BrokenStandby, ThatClaimsBlindlyIsFound) {
  set_log_level(LogLevel::off);
  Counts all;
  int early = 0;
  for (int seed = 0; seed < 60 && early == 0; ++seed) {
    Chain chain(seed, true, all, true);
    chain.run();
    early = chain.early();
  }
  EXPECT_GT(early, 0);
}

INSTANTIATE_TEST_SUITE_P(With, StandbyLives, testing::Bool(), [](const testing::TestParamInfo<bool>& info) {
  return std::string(info.param ? "TwoTiers" : "OneDirectory");
});

}}  // namespace holdfast::test
