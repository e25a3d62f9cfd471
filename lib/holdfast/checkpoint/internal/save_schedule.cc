#include "holdfast/checkpoint/internal/save_schedule.h"

#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/ledger/ledger_reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void SaveSchedule::begin() {
  policy_ = SavePolicy(run_.options.every, run_.clock.now(), run_.started.resumed.step);
  publish();
}

void SaveSchedule::publish() noexcept {
  // The policy belongs to the training thread, and the heartbeat's thread asks for the next save.
  const SteadyTime now = run_.clock.now();
  const Next next{.at = policy_.next_due_time(now),
                  .step = policy_.next_due_step(now),
                  .interval = policy_.interval(run_.costs.costs().step)};
  const MutexLock lock(mutex_);
  next_ = next;
}

SaveSchedule::Next SaveSchedule::next() const {
  const MutexLock lock(mutex_);
  return next_;
}

void SaveSchedule::saved(SteadyTime now, std::int64_t step) {
  policy_.saved(now, step);
  publish();
}

void SaveSchedule::learn_lives() noexcept {
  // Only an automatic interval is worth reading the ledgers of all attempts.
  if (!policy_.automatic()) return;
  try {
    const auto run_directory = run_.file_system.open_directory(run_.options.directory, false);
    if (!run_directory) return;
    policy_.learn(machine_lives(read_lives(*run_directory), boot_id()));
  } catch (const std::exception& error) {
    log_warning("the save interval is chosen without earlier attempts: {}", what_of(error));
  }
}

void SaveSchedule::take_requests() {
  if (run_.monitor.take_checkpoint_request()) wanted_ = true;
  if (!run_.monitor.take_risk()) return;
  wanted_ = true;
  policy_.hurry_until(run_.clock.now() + kRiskLasts);
  publish();
  log_info("the machine is at risk: a save now, and the interval is halved for {}",
           format_duration(kRiskLasts));
}

bool SaveSchedule::choose_interval() {
  if (!policy_.automatic()) return false;
  const RunFigures figures = run_.book->figures();
  // Only after a new durable save.
  if (figures.durable == 0 || std::exchange(measured_, figures.durable) == figures.durable) return false;
  // The measured loss of time, once it is known; until then the training's waits.
  const Duration stall = figures.lost().value_or(figures.blocked) / figures.durable;
  policy_.measured({.stall = stall, .write = figures.last.write + figures.last.commit});
  publish();
  if (log_enabled(LogLevel::debug)) {
    log_debug("a save costs the training {}: one every {} from here on", format_duration(stall),
              format_duration(policy_.chosen_interval().value_or(Duration::zero())));
  }
  return true;
}

}}}  // namespace holdfast::v0_2::internal
