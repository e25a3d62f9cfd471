#include "shell_run.h"

#include <algorithm>
#include <iostream>

#include "holdfast/base/text.h"
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
  goal_ = has(F::fast_steps) ? 100 + static_cast<std::int64_t>(chance_.draw(300))
                             : 12 + static_cast<std::int64_t>(chance_.draw(30));
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
    check(P::run_completes, attempts_.size() < kMostAttempts, "after " + std::to_string(attempts_.size()) + " attempts");
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
                  "rank " + std::to_string(process->rank) + " at step " + std::to_string(process->state.step()) + "\n" +
                      fibers_->report());
          }
        }
      }
    }
  }
}

ShellAttempt& ShellRun::begin(bool disturbed) {
  attempts_.push_back(std::make_unique<ShellAttempt>(seed_ * 100 + attempts_.size()));
  ShellAttempt& attempt = *attempts_.back();
  ++counts_.attempts;
  attempt.number = static_cast<int>(attempts_.size());
  attempt.disturbed = disturbed;
  attempt.disk = disk_;
  attempt.began = fibers_->now();
  choose(attempt);
  const int ranks = has(F::several) ? 2 + static_cast<int>(chance_.draw(2)) : 1;
  if (ranks > 1) {
    attempt.world = std::make_unique<test::MemoryWorld>(ranks);
    attempt.world->timeout = 5min;
    attempt.seers = has(F::blind_ranks) ? 1 + static_cast<int>(chance_.draw(static_cast<std::uint64_t>(ranks))) : ranks;
    for (int rank = 1; rank < ranks; ++rank) {
      if (chance_.one_in(2)) attempt.world->machines[rank] = "machine-" + std::to_string(rank);
    }
  }
  for (int rank = 0; rank < ranks; ++rank) {
    attempt.processes.push_back(std::make_unique<ShellProcess>(*this, attempt, ranks == 1 ? -1 : rank, ++groups_));
  }
  if (disturbed) disturb(attempt);
  for (const auto& process : attempt.processes) process->start();
  return attempt;
}

void ShellRun::choose(ShellAttempt& attempt) {
  const bool fast = has(F::fast_steps);
  const auto often = [&](std::uint64_t least, std::uint64_t most) {
    return static_cast<std::int64_t>((least + chance_.draw(most - least + 1)) * (fast ? 10 : 1));
  };
  ShellAttempt::Choice& choice = attempt.choice;
  choice.step_time = fast ? chance_.between(5ms, 80ms) : chance_.between(500ms, 8s);
  if (has(F::by_steps)) {
    choice.every_steps = often(1, 9);
    choice.every.push_back(SaveEvery::steps(*choice.every_steps));
  }
  if (has(F::by_time)) choice.every.emplace_back(chance_.between(5s, 90s));
  if (has(F::automatic) && choice.every.empty()) choice.every = SaveEvery::automatic();
  if (has(F::evaluations)) choice.evaluate_at = often(3, 10);
  choice.evaluation = chance_.between(3s, 40s);
  if (has(F::saves)) choice.save_at = often(2, 8);
  choice.keep = KeepLast{2 + static_cast<int>(chance_.draw(3))};
  if (has(F::best)) choice.keep |= KeepBest{.metric = "accuracy", .better = Better::higher};
  if (has(F::other_policy)) {
    choice.policy = std::array{OnNotice::wait, OnNotice::exit, OnNotice::callback}[chance_.draw(3)];
  }
  choice.write_limit = 0.02 + 0.01 * static_cast<double>(chance_.draw(50));
  Weather& weather = attempt.weather;
  weather.sync = chance_.between(1ms, 60ms);
  if (has(F::slow_disk)) {
    weather.sync = chance_.between(100ms, 3s);
    weather.bytes_a_second = 1e5 * static_cast<double>(1 + chance_.draw(20));
    weather.uneven = chance_.one_in(2);
  }
}

void ShellRun::at(ShellProcess& process, SteadyTime time, std::function<void()> work) {
  fibers_->start(process.group, [this, time, &process, work = std::move(work)] {
    fibers_->sleep_until(time);
    if (!process.ended) work();
  });
}

void ShellRun::disturb(ShellAttempt& attempt) {
  const ShellAttempt::Choice& choice = attempt.choice;
  Duration length = choice.step_time * goal_ + 5s;
  if (choice.evaluate_at != 0) length += choice.evaluation * (goal_ / choice.evaluate_at);
  const auto some_time = [&] { return attempt.began + chance_.between(0s, length); };
  const auto someone = [&]() -> ShellProcess& { return *attempt.processes[chance_.draw(attempt.processes.size())]; };
  Weather& weather = attempt.weather;
  const auto spell = [&](Weather::Spell& one, Duration longest) {
    one.from = chance_.one_in(6) ? attempt.began : some_time();
    one.until = one.from + chance_.between(1s, longest);
    attempt.longest = std::max(attempt.longest, one.until);
  };
  if (has(F::failing_disk)) {
    spell(weather.fails, 2min);
    weather.reads_fail = chance_.one_in(4);
  }
  if (has(F::full_disk)) spell(weather.full, 5min);
  if (has(F::hanging_disk)) spell(weather.hangs, 15min);
  if (has(F::kill)) attempt.killed_at = some_time();
  if (has(F::hanging_disk) && has(F::kill) && chance_.one_in(2)) {
    weather.hangs.until = Fibers::kNever;
    attempt.killed_at = weather.hangs.from + chance_.between(1s, 10min);
  }
  if (has(F::requests)) {
    for (auto left = chance_.draw(4); left > 0; --left) {
      ShellProcess& process = someone();
      at(process, some_time(), [this, &process, &attempt] {
        const std::int64_t step = process.state.step();
        if (!process.with_checkpointer([](Checkpointer& one) { one.request_save(); }) || !process.resumed) return;
        if (!calm() || attempt.notices) return;
        fibers_->sleep(5min + attempt.choice.step_time * 3);
        check(P::request_is_served, process.ended || process.finished || attempt.notices || acknowledged_ >= step,
              "asked at step " + std::to_string(step) + ", and " + std::to_string(acknowledged_) + " is the newest");
      });
    }
  }
  if (has(F::stop)) {
    ShellProcess& process = someone();
    at(process, some_time(), [this, &process, &attempt] {
      attempt.told = true;
      const auto now = fibers_->now();
      if (chance_.one_in(3)) {
        process.with_checkpointer([](Checkpointer& one) { one.request_stop("the program wants it"); });
        return;
      }
      const bool guessed = has(F::guess) || calm();
      process.news->tell({.kind = NoticeKind::stop,
                          .deadline = now + (guessed ? 25s : chance_.between(5s, 3min)),
                          .text = "SIGTERM",
                          .guessed = guessed});
    });
  }
  if (has(F::notice)) announce(attempt, someone(), some_time());
  if (has(F::notice) && has(F::several_notices)) announce(attempt, someone(), some_time());
  if (has(F::lost_rank) && attempt.processes.size() > 1) {
    ShellProcess& process = someone();
    fibers_->start(0, [this, time = some_time(), &process, &attempt] {
      fibers_->sleep_until(time);
      if (process.ended || attempt.killed_at == SteadyTime::min()) return;
      say(process, "is lost");
      attempt.rank_lost = true;
      fibers_->kill(process.group);
      process.ended = process.lost = true;
      attempt.world->lose(process.rank);
      fibers_->wake(this);
    });
  }
  if (has(F::rival)) {
    fibers_->start(0, [this, time = some_time(), &attempt] {
      fibers_->sleep_until(time);
      if (live_.size() != 1 || live_.front() != &attempt) return;
      live_.push_back(&begin(false));
    });
  }
}

// The machine of that rank will end, and perhaps does.
void ShellRun::announce(ShellAttempt& attempt, ShellProcess& process, SteadyTime when) {
  const Duration notice = chance_.between(20s, 6min);
  const SteadyTime deadline = when + notice;
  const bool withdrawn = has(F::withdraw) && chance_.one_in(2);
  const bool guessed = has(F::guess) && chance_.one_in(2);
  const bool hibernates = has(F::hibernate) && chance_.one_in(2);
  const Duration until_withdrawn = chance_.between(1s, notice + 50s);
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
  if (withdrawn || guessed || hibernates || has(F::several_notices) || has(F::stop) || !calm()) return;
  // Room for what is being done, for the save that is being written, and for the last one.
  const Duration room = 30s + attempt.choice.step_time * 4 + attempt.choice.evaluation +
                        (has(F::write_limit) ? 60s : 0s);
  if (notice > room) at(process, deadline, [this, &attempt, deadline] { look_at_end(attempt, deadline); });
  if (has(F::power) && !has(F::kill)) attempt.killed_at = std::min(attempt.killed_at, deadline);
}

void ShellRun::look_at_end(ShellAttempt& attempt, SteadyTime /*deadline*/) {
  const ShellProcess& leader = *attempt.processes.front();
  if (!leader.resumed || complete_) return;
  check(P::newest_step_before_the_end, acknowledged_ >= leader.state.step(),
        "step " + std::to_string(leader.state.step()) + " is the newest, and " + std::to_string(acknowledged_) +
            " is durable");
}

void ShellRun::resumed(ShellProcess& process) {
  const Resumed& found = *process.resumed;
  say(process, "resumes at step " + std::to_string(found.step));
  ShellAttempt& attempt = process.attempt;
  check(P::resumed_is_a_boundary, process.state.torn.empty(), process.state.torn);
  check(P::resumed_is_a_boundary, process.state.step() == found.step, "the state is of another step than the start says");
  if (!process.leads()) return;
  check(P::acknowledged_is_found, found.step >= acknowledged_,
        "step " + std::to_string(acknowledged_) + " was acknowledged, and the start takes " +
            std::to_string(found.step));
  attempt.began_with = found.step;
  for (ShellAttempt* older : live_) {
    if (older->number < attempt.number) older->newer = found.step;
  }
}

void ShellRun::trained(ShellProcess& process) {
  ++counts_.steps;
  const auto& choice = process.attempt.choice;
  if (!calm() || !process.leads() || !choice.every_steps || process.attempt.notices || has(F::write_limit)) return;
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
  if (!attempt.newer) acknowledged_ = std::max(acknowledged_, step);
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
  attempt.killed_at = SteadyTime::min();
  std::erase(live_, &attempt);
  if (!live_.empty()) return;  // another machine has the volume
  disk_ = std::make_shared<test::MemoryFileSystem>(has(F::power) ? after_power_cut(*attempt.disk) : attempt.disk->copy());
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
  attempt.killed_at = SteadyTime::min();
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
  const std::string text = "rank " + std::to_string(process.rank) + " of attempt " + std::to_string(attempt.number) +
                           " at step " + std::to_string(process.state.step()) + ": " + std::to_string(code) + " " +
                           process.error;
  const bool disk_failed = attempt.weather.failures + attempt.weather.hung > 0;
  const bool late = has(F::stalls) || has(F::slow_disk);  // so that ranks may give each other up
  switch (code) {
    case 0:
      check(P::code_0_is_complete, process.state.step() == goal_ && (acknowledged_ >= goal_ || attempt.newer), text);
      break;
    case 75:
      check(P::code_75_was_told,
            attempt.told || attempt.rank_lost || (attempt.world && (disk_failed || late || attempt.newer)), text);
      if (calm() && !attempt.notices && !thrown && process.leads()) {
        check(P::stop_saves_the_newest_step, acknowledged_ >= process.state.step(),
              text + ", and " + std::to_string(acknowledged_) + " is durable");
      }
      break;
    case 74:
      check(P::code_74_had_a_failure, disk_failed || attempt.rank_lost || (attempt.world && late), text);
      break;
    case 76:
      check(P::code_76_has_a_newer_attempt, attempt.number < static_cast<int>(attempts_.size()), text);
      break;
    case 1:
      break;
    default:
      check(P::code_75_was_told, false, text);
  }
}

void ShellRun::judge_state(const ShellAttempt& attempt, const ShellProcess& leader) {
  if (attempt.weather.failures + attempt.weather.hung > 0 || attempt.newer || !live_.empty()) return;
  if (leader.code == 76) return;
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
}

void ShellRun::check(ShellPromise promise, bool held, const std::string& why) {
  ++counts_.promises[static_cast<std::size_t>(promise)];
  if (!held) fibers_->fail(std::string(name_of(promise)) + ": " + why);
}

void ShellRun::say(const ShellProcess& process, const std::string& text) const {
  if (!trace_) return;
  std::cerr << "-- " << std::chrono::duration<double>(fibers_->now() - process.attempt.began).count() << " s, attempt "
            << process.attempt.number << " rank " << process.rank << ": " << text << "\n";
}

}  // namespace holdfast::simulation
