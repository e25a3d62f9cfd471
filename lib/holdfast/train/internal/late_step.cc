#include "holdfast/train/internal/late_step.h"

#include <exception>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void LateStep::take() {
  if (step_ == nullptr)
    throw Error("the result of the last update was lost: the trainer ended before it came");
  // result() may throw; the result is then still pending and asked for again.
  result_ = step_->result();
  pending_ = false;
}

LateReport::Numbers LateStep::read() {
  if (pending_) {
    take();
    if (known_) known_(launched_, result_);
  }
  return {.loss = result_.loss, .skipped = result_.skipped};
}

void LateStep::part() noexcept {
  known_ = {};
  try {
    if (pending_) take();
  } catch (const std::exception&) {
    // The device has failed. A later read() says so, and nothing is saved without the result.
  }
  step_ = nullptr;
}

}}}  // namespace holdfast::v0_2::internal
