#include "shell_run.h"

#include <algorithm>
#include <iostream>

#include "holdfast/base/text.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/run_disk.h"

namespace holdfast::simulation {
namespace {

using namespace std::chrono_literals;
using F = ShellFault;
using P = ShellPromise;

constexpr std::size_t kMostAttempts = 12;
constexpr Duration kStuck = 20min;

}  // namespace

ShellRun::ShellRun(std::uint64_t seed, ShellFaults faults, bool trace)
    : seed_(seed), faults_(faults), trace_(trace), chance_(seed, 0) {
  goal_ = has(F::fast_steps) ? 100 + static_cast<std::int64_t>(chance_.draw(200))
                             : 12 + static_cast<std::int64_t>(chance_.draw(calm() ? 90 : 40));
  disturbed_attempts_ = 1 + static_cast<int>(chance_.draw(3));
}

std::string ShellRun::run() {
  FiberOptions options{.seed = seed_, .spurious = has(F::spurious), .backtraces = trace_};
  if (has(F::preemptions)) {
    options.one_in = std::array{400U, 100U, 20U, 4U}[chance_.draw(4)];
    options.by_priority = has(F::by_priority);
  }
  if (has(F::stalls)) {
    options.stalls_one_in = std::array{20'000U, 5'000U, 1'000U}[chance_.draw(3)];
    options.longest_stall = std::array<Duration, 4>{50ms, 2s, 20s, 3min}[chance_.draw(4)];
  }
  fibers_.emplace(options);
  disk_ = std::make_shared<test::MemoryFileSystem>();
  disk_->mount("/vol");
  std::string broken = fibers_->run([this] { live(); });
  counts_.hash = fibers_->hash();
  counts_.points = fibers_->points();
  counts_.seconds = static_cast<std::uint64_t>((fibers_->now().time_since_epoch() - 1000h) / 1s);
  return broken;
}

void ShellRun::live() {
  while (!complete_) {
    check(P::run_completes, attempts_.size() < kMostAttempts,
          "after " + std::to_string(attempts_.size()) + " attempts");
    live_.push_back(&begin(static_cast<int>(attempts_.size()) < disturbed_attempts_));
    while (!live_.empty()) {
      SteadyTime next = fibers_->now() + 1min;
      for (const ShellAttempt* attempt : live_) next = std::min(next, attempt->killed_at);
      if (next > fibers_->now()) fibers_->wait(Fibers::Wait::join, this, next);
      const auto now = fibers_->now();
      for (ShellAttempt* attempt : std::vector(live_)) {
        const auto& processes = attempt->processes;
        if (std::all_of(processes.begin(), processes.end(), [](const auto& one) { return one->ended; })) {
          conclude(*attempt);
        } else if (now >= attempt->killed_at) {
          kill(*attempt);
        } else {
          for (const auto& process : processes) {
            if (process->ended) continue;
            check(P::never_stuck, now < std::max(process->moved, attempt->longest) + kStuck,
                  "rank " + std::to_string(process->rank) + " at step " +
                      std::to_string(process->state.step()) + "\n" + fibers_->report());
          }
        }
      }
    }
  }
}

ShellAttempt& ShellRun::begin(bool disturbed) {
  const auto number = static_cast<std::uint64_t>(attempts_.size());
  Chance chance(seed_, 200 + number);
  attempts_.push_back(std::make_unique<ShellAttempt>(seed_ * 100 + attempts_.size()));
  ShellAttempt& attempt = *attempts_.back();
  ++counts_.attempts;
  attempt.number = static_cast<int>(attempts_.size());
  attempt.disturbed = disturbed;
  attempt.disk = disk_;
  attempt.began = fibers_->now();
  choose(attempt);
  const int ranks = has(F::several) ? 2 + static_cast<int>(chance.draw(2)) : 1;
  if (ranks > 1) {
    attempt.world = std::make_unique<test::MemoryWorld>(ranks);
    attempt.world->timeout = 5min;
    attempt.seers =
        has(F::blind_ranks) ? 1 + static_cast<int>(chance.draw(static_cast<std::uint64_t>(ranks))) : ranks;
    for (int rank = 1; rank < ranks; ++rank) {
      if (chance.one_in(2)) attempt.world->machines[rank] = "machine-" + std::to_string(rank);
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    attempt.processes.push_back(
        std::make_unique<ShellProcess>(*this, attempt, ranks == 1 ? -1 : rank, ++groups_));
  }
  if (disturbed) disturb(attempt);
  for (const auto& process : attempt.processes) process->start();
  return attempt;
}

// Each fault draws by itself, so that a run without one of them has the others as before.
Chance ShellRun::chance_of(const ShellAttempt& attempt, F fault) {
  return {attempt.seed, 300 + static_cast<std::uint64_t>(fault)};
}

void ShellRun::choose(ShellAttempt& attempt) {
  const bool fast = has(F::fast_steps);
  const auto draw = [&](F fault, std::uint64_t below) { return chance_of(attempt, fault).draw(below); };
  const auto often = [&](F fault, std::uint64_t least, std::uint64_t most) {
    return static_cast<std::int64_t>((least + draw(fault, most - least + 1)) * (fast ? 10 : 1));
  };
  ShellAttempt::Choice& choice = attempt.choice;
  Chance chance = chance_of(attempt, F::fast_steps);
  choice.step_time = fast ? chance.between(5ms, 80ms) : chance.between(500ms, 8s);
  choice.keep = KeepLast{2 + static_cast<int>(chance.draw(3))};
  choice.evaluation = chance.between(3s, 40s);
  attempt.weather.sync = chance.between(1ms, 60ms);
  if (has(F::by_steps)) {
    choice.every_steps = often(F::by_steps, 1, 9);
    choice.every.push_back(SaveEvery::steps(*choice.every_steps));
  }
  if (has(F::by_time)) choice.every.emplace_back(chance_of(attempt, F::by_time).between(5s, 90s));
  if (has(F::automatic) && choice.every.empty()) choice.every = SaveEvery::automatic();
  if (has(F::evaluations)) choice.evaluate_at = often(F::evaluations, 3, 10);
  if (has(F::saves)) choice.save_at = often(F::saves, 2, 8);
  if (has(F::best)) choice.keep |= KeepBest{.metric = "accuracy", .better = Better::higher};
  if (has(F::other_policy)) {
    choice.policy = std::array{OnNotice::wait, OnNotice::exit, OnNotice::callback}[draw(F::other_policy, 3)];
  }
  choice.write_limit =
      0.001 * static_cast<double>(1 + draw(F::write_limit, 10));  // a save takes 6 s to a minute
  if (has(F::slow_disk)) {
    Chance slow = chance_of(attempt, F::slow_disk);
    attempt.weather.sync = slow.between(100ms, 3s);
    attempt.weather.bytes_a_second = 1e5 * static_cast<double>(1 + slow.draw(20));
    attempt.weather.uneven = slow.one_in(2);
  }
}

void ShellRun::at(ShellProcess& process, SteadyTime time, std::function<void()> work) {
  ++process.other_threads;
  fibers_->start(process.group, [this, time, &process, work = std::move(work)] {
    fibers_->sleep_until(time);
    if (!process.ended) work();
    --process.other_threads;
  });
}

void ShellRun::disturb(ShellAttempt& attempt) {
  const ShellAttempt::Choice& choice = attempt.choice;
  Duration length = choice.step_time * goal_ + 5s;
  if (choice.evaluate_at != 0) length += choice.evaluation * (goal_ / choice.evaluate_at);
  // Some come while the attempt starts.
  const auto some_time = [&](Chance& chance) {
    return attempt.began + chance.between(0s, chance.one_in(5) ? attempt.weather.sync * 20 : length);
  };
  const auto someone = [&](Chance& chance) -> ShellProcess& {
    return *attempt.processes[chance.draw(attempt.processes.size())];
  };
  Weather& weather = attempt.weather;
  const auto spell = [&](F fault, Weather::Spell& one, Duration longest) {
    Chance chance = chance_of(attempt, fault);
    if (!has(fault)) return chance;
    one.from = chance.one_in(6) ? attempt.began : some_time(chance);
    one.until = one.from + chance.between(1s, longest);
    attempt.longest = std::max(attempt.longest, one.until);
    return chance;
  };
  weather.reads_fail = spell(F::failing_disk, weather.fails, 2min).one_in(4);
  spell(F::full_disk, weather.full, 5min);
  Chance hangs = spell(F::hanging_disk, weather.hangs, 40min);
  Chance kills = chance_of(attempt, F::kill);
  if (has(F::kill)) attempt.killed_at = some_time(kills);
  if (has(F::hanging_disk) && has(F::kill) && hangs.one_in(2)) {
    weather.hangs.until = Fibers::kNever;
    attempt.killed_at = weather.hangs.from + kills.between(1s, 10min);
  }
  if (has(F::requests)) {
    Chance chance = chance_of(attempt, F::requests);
    for (auto left = 1 + chance.draw(4); left > 0; --left) {
      ShellProcess& process = someone(chance);
      const bool beside_a_write = chance.one_in(2);
      at(process, some_time(chance), [=, this, &process, &attempt] {
        for (int i = 0; beside_a_write && i < 1000 && !process.writing; ++i) fibers_->sleep(30ms);
        if (!process.ended) request(attempt, process);
      });
    }
  }
  if (has(F::stop)) {
    Chance chance = chance_of(attempt, F::stop);
    ShellProcess& process = someone(chance);
    SteadyTime when = some_time(chance);
    if (has(F::hanging_disk) && chance.one_in(2)) when = weather.hangs.from + chance.between(0s, 30s);
    at(process, when, [this, chance, &process, &attempt]() mutable {
      attempt.told = true;
      if (chance.one_in(3)) {
        if (process.with_checkpointer([](Checkpointer& one) { one.request_stop("the program wants it"); })) {
          look_at_stop(attempt, process);
        }
        return;
      }
      const bool guessed = has(F::guess) || calm();
      const SteadyTime end = fibers_->now() + (guessed ? 25s : chance.between(5s, 3min));
      if (process.resumed) process.stop_by = end;  // a start reads the disk, however long that takes
      process.news->tell({.kind = NoticeKind::stop, .deadline = end, .text = "SIGTERM", .guessed = guessed});
      look_at_stop(attempt, process);
    });
  }
  if (has(F::notice)) {
    Chance chance = chance_of(attempt, F::notice);
    announce(attempt, someone(chance), some_time(chance), chance);
    if (has(F::several_notices)) announce(attempt, someone(chance), some_time(chance), chance);
  }
  if (has(F::lost_rank) && attempt.processes.size() > 1) {
    Chance chance = chance_of(attempt, F::lost_rank);
    ShellProcess& process = someone(chance);
    fibers_->start(0, [this, time = some_time(chance), &process, &attempt] {
      fibers_->sleep_until(time);
      if (process.ended || attempt.over) return;
      say(process, "is lost");
      attempt.rank_lost = true;
      fibers_->kill(process.group);
      process.ended = process.lost = true;
      attempt.world->lose(process.rank);
      fibers_->wake(this);
    });
  }
  if (has(F::rival)) {
    Chance chance = chance_of(attempt, F::rival);
    fibers_->start(0, [this, time = some_time(chance), &attempt] {
      fibers_->sleep_until(time);
      if (live_.size() != 1 || live_.front() != &attempt) return;
      ShellAttempt& other = begin(false);
      attempt.rivalled = other.rivalled = true;
      live_.push_back(&other);
    });
  }
}

void ShellRun::look_at_stop(ShellAttempt& attempt, ShellProcess& process) {
  // Several ranks agree about once a second of training, in which there may be many long evaluations.
  if (!calm() || attempt.notices || (attempt.world && has(F::fast_steps) && has(F::evaluations))) return;
  fibers_->sleep(1min + attempt.choice.step_time * 3 + attempt.choice.evaluation);
  check(P::stop_is_heard, process.ended || process.finished || process.told || attempt.notices,
        "the training goes on at step " + std::to_string(process.state.step()));
}

void ShellRun::request(ShellAttempt& attempt, ShellProcess& process) {
  // The next after_step() serves it. While the attempt starts: its first step.
  const std::int64_t step =
      process.resumed ? process.state.step() + (process.computing ? 1 : 0) : acknowledged_ + 1;
  if (!process.with_checkpointer([](Checkpointer& one) { one.request_save(); })) return;
  if (!calm() || attempt.notices) return;
  fibers_->sleep((has(F::write_limit) ? 5min : 2min) + attempt.choice.step_time * 3 +
                 attempt.choice.evaluation);
  if (process.ended || process.finished || attempt.notices || attempt.told) return;
  check(
      P::request_is_served, acknowledged_ >= step,
      "asked at step " + std::to_string(step) + ", and " + std::to_string(acknowledged_) + " is the newest");
}

// The machine of that rank will end, and perhaps does.
void ShellRun::announce(ShellAttempt& attempt, ShellProcess& process, SteadyTime when, Chance& chance) {
  const Duration notice = chance.between(20s, 6min);
  const SteadyTime deadline = when + notice;
  const bool withdrawn = has(F::withdraw) && chance.one_in(2);
  const bool guessed = has(F::guess) && chance.one_in(2);
  const bool hibernates = has(F::hibernate) && chance.one_in(2);
  const Duration until_withdrawn = chance.between(1s, notice + 50s);
  attempt.longest = std::max(attempt.longest, deadline + 3min);
  at(process, when, [=, this, &process, &attempt] {
    attempt.told = attempt.notices = true;
    say(process, "hears of an end in " + format_duration(notice) + (guessed ? ", guessed" : "") +
                     (hibernates ? ", a sleep" : ""));
    process.news->tell({.kind = NoticeKind::deadline,
                        .deadline = deadline,
                        .text = "the end is near",
                        .hibernates = hibernates,
                        .guessed = guessed});
    if (withdrawn) {
      fibers_->sleep(until_withdrawn);
      process.news->tell({.kind = NoticeKind::withdrawn, .text = "never mind"});
    }
  });
  if (has(F::several_notices) || has(F::stop) || !calm()) return;
  // Room for what is being done, for the save that is being written, and for the last one.
  const Duration busy = attempt.choice.step_time * 4 + attempt.choice.evaluation + 30s;
  const Duration room = busy + (has(F::write_limit) ? 180s : 0s);
  if (!withdrawn && !guessed && !hibernates && notice > room) {
    at(process, deadline - 1ms, [this, &attempt] { look_at_end(attempt); });
    if (has(F::power) && !has(F::kill)) {
      attempt.killed_at = std::min(attempt.killed_at, deadline);
      return;
    }
  }
  at(process, withdrawn ? when + until_withdrawn : deadline + kAliveAfter, [this, &process, &attempt] {
    const std::int64_t step = process.state.step();
    fibers_->sleep(attempt.choice.step_time * 2 + 6s + (has(F::write_limit) ? 180s : 0s) +
                   (has(F::evaluations) ? attempt.choice.evaluation : Duration::zero()));
    check(P::run_goes_on_afterwards,
          process.ended || process.finished || process.told || process.state.step() > step,
          "at step " + std::to_string(step));
  });
}

void ShellRun::look_at_end(ShellAttempt& attempt) {
  const ShellProcess& leader = *attempt.processes.front();
  if (!leader.resumed || complete_) return;
  // Several ranks agree one step late on what an evaluation has left time for.
  const std::int64_t lost = attempt.world && has(F::evaluations) ? 2 : 0;
  check(P::newest_step_before_the_end, acknowledged_ >= leader.state.step() - lost,
        "step " + std::to_string(leader.state.step()) + " is the newest, and " +
            std::to_string(acknowledged_) + " is durable");
}

void ShellRun::resumed(ShellProcess& process) {
  const Resumed& found = *process.resumed;
  say(process, "resumes at step " + std::to_string(found.step));
  ShellAttempt& attempt = process.attempt;
  check(P::resumed_is_a_boundary, process.state.torn.empty(), process.state.torn);
  check(P::resumed_is_a_boundary, process.state.step() == found.step,
        "the state is of another step than the start says");
  if (!process.leads()) return;
  for (const auto& [number, step] : acknowledged_by_) {
    if (number > process.number) break;  // it claimed the run while this one started
    check(P::acknowledged_is_found, found.step >= step,
          "step " + std::to_string(step) + " was acknowledged, and the start takes " +
              std::to_string(found.step));
  }
  attempt.began_with = found.step;
  for (ShellAttempt* other : live_) {
    const AttemptNumber number = other->processes.front()->number;
    if (number != 0 && number < process.number) other->newer = found.step;
  }
}

void ShellRun::trained(ShellProcess& process) {
  ++counts_.steps;
  const auto& choice = process.attempt.choice;
  if (!calm() || !process.leads() || !choice.every_steps || process.attempt.notices || has(F::write_limit))
    return;
  const std::int64_t unsaved = process.state.step() - std::max(acknowledged_, process.attempt.began_with);
  const auto slack = static_cast<std::int64_t>(10s / choice.step_time) + 3;
  check(P::interval_is_kept, unsaved <= *choice.every_steps + slack,
        std::to_string(unsaved) + " steps, and a save is due every " + std::to_string(*choice.every_steps));
}

void ShellRun::acknowledged(ShellProcess& process, std::int64_t step) {
  ++counts_.durable;
  const ShellAttempt& attempt = process.attempt;
  check(P::superseded_acknowledges_nothing, !attempt.newer || step <= *attempt.newer,
        "step " + std::to_string(step) + " after a newer attempt began with " +
            std::to_string(attempt.newer.value_or(-1)));
  if (calm()) check(P::undisturbed_saves_succeed, true, {});
  acknowledged_ = std::max(acknowledged_, step);
  auto& newest = acknowledged_by_[process.number];
  newest = std::max(newest, step);
}

void ShellRun::failed(ShellProcess& process, std::int64_t step, const std::string& error) {
  if (!calm() || process.attempt.notices || process.attempt.told) return;
  check(P::undisturbed_saves_succeed, false, "step " + std::to_string(step) + ": " + error);
}

void ShellRun::ended(ShellProcess& process) {
  process.ended = true;
  fibers_->wake(this);
}

void ShellRun::kill(ShellAttempt& attempt) {
  if (trace_) std::cerr << "-- attempt " << attempt.number << " is killed\n";
  for (const auto& process : attempt.processes) {
    fibers_->kill(process->group);
    process->ended = process->lost = true;
  }
  attempt.over = true;
  std::erase(live_, &attempt);
  if (!live_.empty()) return;  // another machine has the volume
  disk_ = std::make_shared<test::MemoryFileSystem>(has(F::power) ? after_power_cut(*attempt.disk)
                                                                 : attempt.disk->copy());
}

test::MemoryFileSystem ShellRun::after_power_cut(const test::MemoryFileSystem& disk) {
  std::set<std::string> kept;
  for (std::size_t known = SIZE_MAX; known != kept.size();) {
    known = kept.size();
    for (const std::string& thing : disk.unsynced(kept)) {
      if (chance_.one_in(2)) kept.insert(thing);
    }
  }
  return disk.crash_keeping(kept);
}

void ShellRun::conclude(ShellAttempt& attempt) {
  std::erase(live_, &attempt);
  for (const auto& process : attempt.processes) fibers_->kill(process->group);
  attempt.over = true;
  int code = -1;
  bool errors = false;
  for (const auto& process : attempt.processes) errors = errors || process->lost || !process->error.empty();
  for (const auto& process : attempt.processes) {
    if (process->lost) continue;
    judge(attempt, *process);
    if (!errors && code >= 0) {
      check(P::ranks_tell_the_same, process->code == code,
            std::to_string(process->code) + " and " + std::to_string(code));
    }
    code = process->code;
  }
  const ShellProcess& leader = *attempt.processes.front();
  if (!leader.lost && leader.error.empty()) judge_state(attempt, leader);
  if (leader.code == 0 && !leader.lost) complete_ = true;
}

void ShellRun::judge(const ShellAttempt& attempt, const ShellProcess& process) {
  const bool thrown = !process.error.empty();
  const int code = thrown ? process.error_code : process.code;
  ++counts_.codes[static_cast<std::size_t>(code & 255)];
  const std::string text =
      "rank " + std::to_string(process.rank) + " of attempt " + std::to_string(attempt.number) + " at step " +
      std::to_string(process.state.step()) + ": " + std::to_string(code) + " " + process.error;
  const bool disk_failed = attempt.weather.failures + attempt.weather.hung > 0;
  const bool late = has(F::stalls) || has(F::slow_disk);  // so that ranks may give each other up
  switch (code) {
    case 0:
      check(P::code_0_is_complete,
            (process.state.step() == goal_ || process.leaves) &&
                (acknowledged_ >= process.state.step() || attempt.newer),
            text);
      break;
    case 75:
      check(P::code_75_was_told,
            attempt.told || attempt.rank_lost || (attempt.world && (disk_failed || late || attempt.newer)),
            text);
      if (calm() && !attempt.notices && !thrown && process.leads()) {
        check(P::stop_is_heard, true, {});
        check(P::stop_saves_the_newest_step,
              acknowledged_ >= process.state.step() || process.state.step() == attempt.began_with,
              text + ", and " + std::to_string(acknowledged_) + " is durable");
      }
      break;
    case 74:
      check(P::code_74_had_a_failure,
            disk_failed || attempt.rank_lost || process.left_behind || (attempt.world && late), text);
      check(
          P::code_74_had_a_failure,
          thrown || !process.told || (attempt.began_with == 0 && acknowledged_by_.count(process.number) == 0),
          text + ", although it was told to stop, and a step is durable");
      break;
    case 76:
      check(P::code_76_has_a_newer_attempt, attempt.rivalled, text);
      break;
    case 70:
      check(P::code_0_is_complete, process.failed_at == process.state.step(), text);
      break;
    case 1:
      break;
    default:
      check(P::code_75_was_told, false, text);
  }
}

void ShellRun::judge_state(const ShellAttempt& attempt, const ShellProcess& leader) {
  if (attempt.weather.failures + attempt.weather.hung > 0 || attempt.newer || !live_.empty()) return;
  if (leader.code == 76 || leader.left_behind) return;
  const auto directory = attempt.disk->open_directory(test::kRun, false);
  const auto state = directory ? read_run_state(*directory) : std::nullopt;
  if (!state) return check(P::state_agrees_with_the_code, false, "there is none");
  const RunPhase phase = leader.code == 0    ? RunPhase::complete
                         : leader.code == 75 ? RunPhase::interrupted
                                             : RunPhase::failed;
  check(P::state_agrees_with_the_code,
        state->attempt == leader.number && state->exit_code == leader.code && state->phase == phase &&
            state->step == leader.state.step() && (state->durable_step == acknowledged_ || acknowledged_ < 0),
        "the code is " + std::to_string(leader.code) + ", and the file says " + to_json(*state));
  std::size_t files = 0;
  bool own = false;
  for (const std::string& name : attempt.disk->names(test::kRun)) {
    const auto id = parse_checkpoint_name(name);
    files += id ? 1 : 0;
    own = own || (id && id->attempt == leader.number);
  }
  // Without a save of its own it may delete nothing. The best one may stay as well.
  if (own) {
    check(P::lives_keep_a_small_volume, files <= static_cast<std::size_t>(attempt.choice.keep.last()) + 1,
          std::to_string(files) + " checkpoints stay, code " + std::to_string(leader.code));
  }
}

void ShellRun::check(ShellPromise promise, bool held, const std::string& why) {
  ++counts_.promises[static_cast<std::size_t>(promise)];
  if (!held) fibers_->fail(std::string(name_of(promise)) + ": " + why);
}

void ShellRun::say(const ShellProcess& process, const std::string& text) const {
  if (!trace_) return;
  std::cerr << "-- " << std::chrono::duration<double>(fibers_->now() - process.attempt.began).count()
            << " s, attempt " << process.attempt.number << " rank " << process.rank << ": " << text << "\n";
}

}  // namespace holdfast::simulation
