// A Trainer's newest update, from its launch until its result is known. The Checkpointer asks for the result
// when it needs it, and the trainer then tells its sinks.
//
// Errors: read() passes on those of Step::result() and of `known`; Error if the trainer ended before the
// result was read. Threads: the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "holdfast/snapshot/cursor.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/train/step.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// What is known of an update at its launch.
struct LaunchedStep {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  Cursor cursor;             // after its batch
  std::int64_t samples = 0;  // of this update
  double learning_rate = 0;
};

class LateStep final : public LateReport {
 public:
  using Known = std::function<void(const LaunchedStep& launched, const StepResult& result)>;
  LateStep(Step& step, Known known) : step_(&step), known_(std::move(known)) {}

  void launched(const LaunchedStep& launched) {
    launched_ = launched;
    pending_ = true;
  }
  bool pending() const { return pending_; }
  // The first call reads the result and calls `known`.
  Numbers read() override;
  // The trainer ends: `known` is not called any more, and an unread result is read now.
  void part() noexcept;

 private:
  void take();

  Step* step_;
  Known known_;
  LaunchedStep launched_;
  StepResult result_;
  bool pending_ = false;
};

}}}  // namespace holdfast::v0_2::internal
