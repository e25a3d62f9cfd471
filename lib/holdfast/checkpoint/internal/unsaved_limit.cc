#include "holdfast/checkpoint/internal/unsaved_limit.h"

#include <new>
#include <string>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kUnderASupervisor = std::chrono::hours(1);

}  // namespace

UnsavedLimit::UnsavedLimit(Run& run, RunDriver& driver)
    : run_(run),
      driver_(driver),
      chosen_([&] {
        const auto variable = env_duration(kEnvGiveUpUnsaved);
        return variable ? variable : run.options.writing.give_up_unsaved;
      }()),
      // A program that wants to train unsaved has chosen, too.
      supervised_(env_text(kEnvSupervisor).has_value() && !run.options.writing.train_unsaved) {}

std::optional<Duration> UnsavedLimit::limit(bool lasts) const {
  if (chosen_) return *chosen_ > Duration::zero() ? chosen_ : std::nullopt;
  // A volume may come back while memory still holds all work.
  return supervised_ && lasts ? std::optional(kUnderASupervisor) : std::nullopt;
}

void UnsavedLimit::look() noexcept {
  if (gave_up_) return;
  const auto failures = run_.writer->failures();
  const auto most = failures ? limit(failures->lasts) : std::nullopt;
  if (!most || run_.clock.now() - failures->first < *most) return;
  if (failures->last - failures->first < *most) {
    // The interval may be long, so the try that decides is asked for now.
    if (asked_at_ != failures->count) driver_.give(run::NoticeHeard{.kind = NoticeKind::checkpoint_now});
    asked_at_ = failures->count;
    return;
  }
  gave_up_ = true;
  try {
    run_.monitor.post({.source = "saves",
                       .kind = NoticeKind::stop,
                       .text = "no save has succeeded for " +
                               format_duration(failures->last - failures->first) + " (" +
                               std::to_string(failures->count) + " failed): the run gives up"});
  } catch (const std::bad_alloc&) {
    gave_up_ = false;  // at the next boundary there may be memory
  }
}

}}}  // namespace holdfast::v0_2::internal
