#include "holdfast/checkpoint/internal/shared_rounds.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/ranks/shared_volume.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void SharedRounds::find_volume() {
  SharedVolume volume = find_shared_volume(run_.file_system, run_.options.directory,
                                           run_.started.record.attempt, group_.channel(), run_.clock);
  const auto others = std::count(volume.sees.begin() + 1, volume.sees.end(), true);
  group_.determine_volume(volume.sees);
  if (group_.leads()) {
    for (std::size_t rank = 1; rank < volume.sees.size(); ++rank) {
      if (volume.sees[rank]) continue;
      log_info("rank {} does not see {}, and gets the state from rank 0: {}", static_cast<int>(rank),
               run_.options.directory, volume.reasons[rank]);
    }
  }
  if (!group_.sharing()) return;
  if (group_.leads()) log_info("{} of {} ranks write each checkpoint", others + 1, group_.world_size());
  run_.stager.divide_among(group_.rank(), std::move(volume.sees));
}

// A file that was laid out for other tensors is one that no rank could share.
void SharedRounds::lay_out_again() noexcept {
  if (!group_.sharing() || !run_.source.may_change_form() || run_.source.needs_others()) return;
  try {
    run_.stager.plan_ahead();
  } catch (const std::exception& error) {  // the next save will fail for the same reason, and log it
    log_debug("the file could not be laid out: {}", what_of(error));
  }
}

void SharedRounds::begin(const Agreed& agreed) {
  plan_ = group_.sharing() && agreed.shares() ? agreed.plan : 0;
  limit_patience();
  if (plan_ == 0) return;
  // Counted from agreed votes alone, so that all ranks give a save the same number.
  ++number_;
  owed_ = group_.leads();
}

void SharedRounds::end(const Decision& decision) noexcept {
  if (std::exchange(owed_, false)) {
    if (decision.save.step() == run_.step()) {
      const std::string failed = text_or_out_of_memory([&] { return decision.save.error(); });
      group_.shared().decline(run_.step(), failed, number_);
    } else {
      // Not a failure: the step is durable or in flight, or there is no time or no room for the save.
      group_.shared().leave_out(run_.step(), number_);
    }
  }
  plan_ = 0;
}

std::shared_ptr<JointSave> SharedRounds::led(const WriteRequest& request,
                                             std::shared_ptr<const Shares> shares) const {
  if (!owed_) return nullptr;
  SharedSave shared{.plan = request.plan, .shares = std::move(shares), .number = number_};
  return std::make_shared<LedSave>(group_.shared(), request.snapshot->step, std::move(shared), limits());
}

SharedWriteOptions SharedRounds::limits() const {
  const WritingOptions& writing = run_.options.writing;
  // The limit is the volume's, and all ranks write to it.
  SharedWriteOptions limits{
      .how = {.threads = writing.threads,
              .write_limit = writing.write_limit / group_.world_size(),
              .clock = &run_.clock,
              .limit_lifted = &group_.limit_lifted(),
              .recheck = {.round = static_cast<std::uint64_t>(number_ + run_.started.record.attempt)}},
      .patience = &group_.patience()};
  limits.begin_within = std::min(limits.begin_within, longest_wait());
  limits.reports_within = std::min(limits.reports_within, longest_wait());
  return limits;
}

// Before an announced end, rank 0 stops waiting for the others early enough to write a save alone, but not
// before the shared save could have ended. If there is no time for both, it waits until the end. The other
// ranks always wait for rank 0.
void SharedRounds::limit_patience() noexcept {
  patient_until_ = group_.end();
  if (!group_.end()) return group_.patience().renew();
  SteadyTime until = *group_.end();
  const Duration left = *group_.end() - run_.clock.now();
  if (group_.leads() && group_.sharing() && !group_.alone() && left > Duration::zero()) {
    const Costs known = run_.outlook.costs();
    // Without known costs, a third of the time for each.
    const Duration together = known.commit.value_or(left / 3);
    const Duration alone = known.commit ? *known.commit * group_.world_size() : left / 3;
    if (left >= together + alone + known.agreement) until -= alone + known.agreement;
  }
  group_.patience().end_by(until);
}

bool SharedRounds::end_has_moved(Duration by) const {
  const auto end = group_.end();
  if (end.has_value() != patient_until_.has_value()) return true;
  return end && std::max(*end - *patient_until_, *patient_until_ - *end) > by;
}

}}}  // namespace holdfast::v0_2::internal
