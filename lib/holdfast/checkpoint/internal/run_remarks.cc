// What people are told of the core's decisions.
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/run_driver.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void RunDriver::say_pause(std::int64_t step) {
  if (std::exchange(said_pause_, true)) return;
  if (others_.alone()) {
    log_info("pausing at step {} until the machine goes away; the newest durable step is {}", step,
             run_.newest_durable());
  } else {
    log_info("pausing at step {} with all ranks until the machine goes away", step);
  }
  if (others_.leads()) run_.ledger.pause(step, "the end is near");
}

void RunDriver::say(const run::Say& said) noexcept {
  const SteadyTime now = run_.clock.now();
  switch (said.what) {
    case run::Remark::too_late:
      return too_late(said.step);
    case run::Remark::not_home:
      return not_home(said.step);
    case run::Remark::no_room: {
      const std::string left = text_or_out_of_memory([&] {
        const auto time = time_left();
        return time ? ", " + format_duration(*time) + " left," : std::string();
      });
      return log_warning(
          "the save that was asked for at step {} waits: before the announced end{} only the last save has "
          "time",
          said.step, left);
    }
    case run::Remark::pausing:
      pausing_ = true;
      waiting_time_.reset();
      pause_.emplace(run_.time);
      return;
    case run::Remark::going_on:
      return;
    case run::Remark::outlived:
      if (const auto notice = run_.monitor.standing(); notice && *notice->deadline <= now - kAliveAfter) {
        log_info("the machine lives {} after its end was due ({}): the run goes on",
                 format_duration(now - *notice->deadline), notice->text);
      } else {
        log_info("the machine of another rank lives after its end was due: the run goes on");
      }
      return run_.monitor.dismiss(now - kAliveAfter);
    case run::Remark::awake:
      log_info("the machine has slept and is awake again: the run goes on");
      return run_.monitor.dismiss(now - kAliveAfter, true);
    case run::Remark::no_image:
      return log_warning(
          "step {} is not saved now: the save before is being written, and no image became free in time",
          said.step);
    case run::Remark::not_kept:
      // A failed save: whoever watches the run must see that it commits nothing newer.
      saves_.failed(
          "the only image is still being written; a stop inside this evaluation commits nothing newer",
          FailureKind::may_pass);
      return;
    case run::Remark::late_gives_up:
      return log_warning(
          "before_update() was not called before the update of step {}: the save in progress is dropped and "
          "made again, and from now on after_step copies the whole state",
          run_.step());
    case run::Remark::spoiled:
    case run::Remark::torn:
    case run::Remark::declined:
      return;
  }
}

void RunDriver::too_late(std::int64_t step) noexcept {
  const std::string text = text_or_out_of_memory([&] {
    std::string late = "no time for a save of step " + std::to_string(step);
    if (const auto commit = run_.costs.costs().commit)
      late += ", which takes about " + format_duration(*commit);
    if (const auto left = time_left()) late += ": " + format_duration(*left) + " left";
    return late;
  });
  const std::int64_t durable = run_.newest_durable();
  durable >= 0 ? log_warning("{}; step {} is the newest that is durable", text, durable)
               : log_warning("{}; nothing of this run is durable", text);
}

void RunDriver::not_home(std::int64_t step) noexcept {
  const auto home = run_.book->home_step();
  if (!home) return;
  const std::string text = text_or_out_of_memory([&] {
    std::string late = "step " + std::to_string(step) + " will not be home in time";
    if (const auto took = run_.costs.costs().home) late += ": the way takes about " + format_duration(*took);
    if (const auto left = time_left()) late += ", " + format_duration(*left) + " left";
    return late;
  });
  *home >= 0 ? log_warning("{}; step {} is the newest that is home", text, *home)
             : log_warning("{}; nothing of this run is home", text);
}

}}}  // namespace holdfast::v0_2::internal
