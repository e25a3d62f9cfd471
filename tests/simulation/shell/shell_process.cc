#include "shell_process.h"

#include <stdexcept>

#include "holdfast/base/error.h"
#include "shell_run.h"
#include "support/run_disk.h"

namespace holdfast::simulation {
namespace {

using namespace std::chrono_literals;
using F = ShellFault;
using P = ShellPromise;

// A healthy disk, with no limit of its speed, since a stop and the end lift that.
constexpr Duration kDiskTakes = 15s;

class Told final : public Source {
 public:
  explicit Told(std::shared_ptr<News> news) : news_(std::move(news)) {}
  std::string_view name() const override { return "program"; }
  Duration interval() const override { return 1h; }
  int wake_descriptor() const override { return news_->event; }
  std::vector<Notice> poll() override {
    eventfd_t ignored = 0;
    eventfd_read(news_->event, &ignored);
    return std::exchange(news_->waiting, {});
  }

 private:
  std::shared_ptr<News> news_;
};

bool is_final(SaveStatus status) { return status != SaveStatus::staging && status != SaveStatus::staged; }

}  // namespace

ShellProcess::ShellProcess(ShellRun& the_run, ShellAttempt& the_attempt, int the_rank,
                           Fibers::Group the_group)
    : run(the_run),
      attempt(the_attempt),
      rank(the_rank),
      group(the_group),
      state(the_rank),
      view(the_attempt.sees(the_rank) ? static_cast<FileSystem&>(*the_attempt.disk) : nothing),
      chance_(the_attempt.seed, 100 + static_cast<std::uint64_t>(the_rank + 1)) {
  view.set_hook([this](const test::Operation& operation) { attempt.weather.at(operation, view); });
}

bool ShellProcess::alone() const { return attempt.world == nullptr; }

void ShellProcess::start() {
  moved = Fibers::current()->now();
  Fibers::current()->start(group, [this] { live(); });
}

CheckpointerOptions ShellProcess::options() {
  const ShellAttempt::Choice& choice = attempt.choice;
  CheckpointerOptions options;
  options.directory = test::kRun;
  options.mount = "/vol";
  options.every = choice.every;
  options.keep = choice.keep;
  options.start.mount_wait = 1min;
  options.start.seams.file_system = &view;
  options.notices.hear_signals = false;
  options.notices.cloud = false;
  options.notices.on_notice = choice.policy;
  if (choice.policy == OnNotice::callback) {
    options.notices.decide = [this](const Notice&, Duration) {
      return std::array{OnNotice::train_on, OnNotice::wait, OnNotice::exit}[chance_.draw(3)];
    };
  }
  options.notices.sources.emplace_back([news = news](Clock&) { return std::make_unique<Told>(news); });
  options.writing.threads = 1;
  options.writing.second_image = run.has(F::second_image);
  if (run.has(F::write_limit)) options.writing.write_limit = choice.write_limit;
  options.writing.on_save = [this](const SaveEvent& event) { hear(event); };
  if (attempt.world) {
    options.ranks.channel = &attempt.world->rank(rank);
    options.ranks.shared_write = !run.has(F::unshared);
  }
  return options;
}

void ShellProcess::live() {
  Fibers& fibers = *Fibers::current();
  SteadyTime ends{};
  try {
    Checkpointer checkpointer(state, options());
    try {
      checkpointer_ = &checkpointer;
      if (run.has(F::expects_end)) checkpointer.expect_last_step(run.goal());
      if (run.has(F::reads_ahead)) {
        checkpointer.read_ahead();
        fibers.sleep(chance_.between(0s, 1s));
      }
      if (run.has(F::peeks)) {
        const auto peeked = checkpointer.peek();
        run.say(*this, "peeks at step " + std::to_string(peeked ? peeked->step : -1));
      }
      if (run.has(F::asks)) ask();
      resumed = checkpointer.resume();
      moved = fibers.now();
      number = checkpointer.attempt();
      run.resumed(*this);
      train(checkpointer);
      finish(checkpointer);
    } catch (...) {
      await_other_threads();
      ends = fibers.now();
      throw;
    }
    await_other_threads();
    ends = fibers.now();
  } catch (const Error& what) {
    error = what.what();
    error_code = static_cast<int>(what.exit_code());
  } catch (const std::runtime_error& what) {  // the program's own
    error = what.what();
    error_code = 1;
  }
  left_behind = fibers.count(group) > 1 + other_threads;
  run.check(P::destructor_returns,
            attempt.weather.hung > 0 || run.has(F::stalls) || fibers.now() - ends < attempt.patience(),
            "after " + format_duration(fibers.now() - ends));
  check_stop();
  watch_handles(true);
  fibers.sleep(30s);  // a waiter that is awake may stand still for a while
  run.check(P::waiters_wake, waiters_ == 0 || left_behind || run.has(F::stalls),
            std::to_string(waiters_) + " threads still wait for a save");
  if (attempt.world && !error.empty()) attempt.world->lose(rank);
  run.say(*this, error.empty() ? "ended with " + std::to_string(code)
                               : "broke off with " + std::to_string(error_code) + ": " + error);
  run.ended(*this);
}

// Another thread of the program asks what any thread may ask.
void ShellProcess::ask() {
  ++other_threads;
  Fibers::current()->start(group, [this] {
    while (with_checkpointer([this](Checkpointer& checkpointer) {
      static_cast<void>(checkpointer.figures());
      static_cast<void>(checkpointer.notices());
      static_cast<void>(checkpointer.deadline());
      checkpointer.expect_last_step(run.goal());
    })) {
      Fibers::current()->sleep(attempt.choice.step_time * 3 + 500ms);
    }
    --other_threads;
  });
}

// A program destroys a Checkpointer when no other thread is in a call of it.
void ShellProcess::await_other_threads() {
  checkpointer_ = nullptr;
  while (calling_ > 0) Fibers::current()->sleep(1ms);
}

void ShellProcess::train(Checkpointer& checkpointer) {
  while (state.step() < run.goal() && !told && !leaves) {
    if (step(checkpointer)) told = true;  // or an evaluation was
  }
}

// One turn of the loop: true if the run must stop.
bool ShellProcess::step(Checkpointer& checkpointer) {
  Fibers& fibers = *Fibers::current();
  const ShellAttempt::Choice& choice = attempt.choice;
  computing = true;
  fibers.sleep(choice.step_time * 2 / 3);
  if (chance_.one_in(8) && checkpointer.tick()) return true;
  if (run.has(F::announces_updates)) checkpointer.before_update();
  state.begin_update();
  fibers.sleep(choice.step_time / 3);
  const StepReport report = state.end_update();
  const SteadyTime boundary = fibers.now();
  computing = false;
  const Decision decision = checkpointer.after_step(report);
  moved = fibers.now();
  if (decision.stop && run.calm() && !attempt.notices) {
    run.check(P::stop_waits_for_the_disk_alone, moved - boundary < kDiskTakes,
              "after " + format_duration(moved - boundary));
  }
  run.check(P::never_stuck, true, "");
  if (decision.saved || decision.save.step() >= 0) keep(decision.save);
  watch_handles(false);
  run.trained(*this);
  if (decision.stop) {
    run.say(*this, "is told to stop at step " + std::to_string(state.step()) + ": " + decision.reason);
    return true;
  }
  if (choice.save_at != 0 && state.step() % choice.save_at == 0) {
    keep(checkpointer.save());
    if (!handles_.empty() && chance_.one_in(3)) {
      const SaveHandle newest = handles_.back().handle;
      chance_.one_in(2) ? static_cast<void>(newest.wait())
                        : static_cast<void>(newest.wait_for(attempt.patience()));
    }
  }
  if (choice.evaluate_at != 0 && state.step() % choice.evaluate_at == 0) {
    try {
      evaluate(checkpointer);
    } catch (const std::runtime_error&) {
      moved = fibers.now();
      if (chance_.one_in(2)) throw;
      failed_at = state.step();
      keep(checkpointer.save());  // which must not hold what the evaluation has left
      leaves = chance_.one_in(2);
      return false;
    }
    moved = fibers.now();
    if (run.has(F::best)) checkpointer.metric("accuracy", static_cast<double>(chance_.draw(100)));
  }
  return false;
}

void ShellProcess::evaluate(Checkpointer& checkpointer) {
  Fibers& fibers = *Fibers::current();
  const bool throws = run.has(F::exceptions) && alone() && attempt.disturbed && chance_.one_in(8);
  run.say(*this, "evaluates step " + std::to_string(state.step()));
  const Checkpointer::EvaluationScope scope(checkpointer);
  moved = fibers.now();
  state.evaluate();
  for (Duration left = attempt.choice.evaluation; left > Duration::zero(); left -= 2s) {
    fibers.sleep(2s);
    if (chance_.one_in(2) && checkpointer.tick()) {
      run.say(*this, "is told to stop in the evaluation");
      told = true;
      break;
    }
    if (throws && chance_.one_in(3)) throw std::runtime_error("the evaluation fails");
  }
  state.restore();
}

void ShellProcess::finish(Checkpointer& checkpointer) {
  Fibers& fibers = *Fibers::current();
  const SteadyTime began = fibers.now();
  moved = began;
  code = checkpointer.finish();
  finished = true;
  moved = fibers.now();
  if (leads() && checkpointer.last_durable().step >= 0)
    run.acknowledged(*this, checkpointer.last_durable().step);
  // A run that ends by itself keeps the limit of its writes.
  const Duration longest = run.has(F::write_limit) && !told ? Duration(5min) : kDiskTakes;
  run.check(P::finish_returns, !run.calm() || fibers.now() - began < longest,
            "after " + format_duration(fibers.now() - began));
}

// A stop ends in time, whatever the disk does. An end that has passed, or is guessed, is exceeded by five
// minutes, or by three saves.
void ShellProcess::check_stop() const {
  if (!told || stop_by == Fibers::kNever || !alone() || run.has(F::stalls)) return;
  const Duration after = Fibers::current()->now() - stop_by;
  run.check(P::stop_ends_in_time,
            after < 6min + 3 * longest_save_ + attempt.choice.evaluation + attempt.choice.step_time,
            format_duration(after) + " after its deadline");
}

void ShellProcess::hear(const SaveEvent& event) {
  // A copy: the texts are gone once another fiber runs.
  const SaveEvent heard{.status = event.status, .step = event.step};
  run.say(*this, "on_save: step " + std::to_string(heard.step) + " status " +
                     std::to_string(static_cast<int>(heard.status)) + " " + std::string(event.error));
  run.check(P::on_save_after_finish, !finished, "step " + std::to_string(heard.step));
  writing = heard.status == SaveStatus::staged;
  const SteadyTime now = Fibers::current()->now();
  if (writing) {
    staged_at_ = now;
    ++staged_[heard.step];
  } else {
    ++settled_[heard.step];
    if (heard.status == SaveStatus::durable && leads()) {
      run.check(P::told_in_order, --staged_[heard.step] >= 0,
                "step " + std::to_string(heard.step) + " is durable and was not staged");
      run.acknowledged(*this, heard.step);
      longest_save_ = std::max<Duration>(longest_save_, now - staged_at_);
    }
    if (heard.status == SaveStatus::failed) run.failed(*this, heard.step, std::string(event.error));
  }
  if (!run.has(F::calls_back)) return;
  for (std::size_t i = 0; i < handles_.size(); ++i) {  // the training thread may add one meanwhile
    const SaveHandle one = handles_[i].handle;
    static_cast<void>(one.status());
  }
  const auto choice = chance_.draw(10);
  with_checkpointer([&](Checkpointer& checkpointer) {
    if (choice == 0) checkpointer.request_save();
    if (choice < 4) static_cast<void>(checkpointer.figures());
    if (choice == 5 && attempt.disturbed && run.has(F::stop) && chance_.one_in(5)) {
      attempt.told = true;
      checkpointer.request_stop("the program");
    }
  });
}

void ShellProcess::keep(const SaveHandle& handle) {
  if (handle.step() < 0) return;
  handles_.push_back({handle, handle.status()});
  if (!chance_.one_in(3)) return;
  // A thread of the program waits for it.
  ++other_threads;
  ++waiters_;
  Fibers::current()->start(group, [this, handle] {
    if (chance_.one_in(2)) handle.wait_staged();
    handle.wait();
    --waiters_;
    --other_threads;
  });
}

void ShellProcess::watch_handles(bool all_over) {
  for (Kept& kept : handles_) {
    const SaveStatus now = kept.handle.status();
    run.check(P::settled_once, !is_final(kept.last) || now == kept.last,
              "step " + std::to_string(kept.handle.step()) + " was " +
                  std::to_string(static_cast<int>(kept.last)) + " and is " +
                  std::to_string(static_cast<int>(now)));
    // After finish() a thread that was left behind may still make it durable, and tells nobody.
    if (now == SaveStatus::durable && leads() && !finished) {
      run.check(P::durable_is_told_by_the_handle,
                settled_[kept.handle.step()] > 0 || kept.handle.step() == resumed->step,
                "step " + std::to_string(kept.handle.step()) + " is durable, and on_save was not told");
    }
    kept.last = now;
    if (all_over) {
      run.check(P::saves_are_settled, is_final(now) || left_behind,
                "the save of step " + std::to_string(kept.handle.step()) + " is never settled");
    }
  }
}

}  // namespace holdfast::simulation
