// Keeps the figures of an attempt, and calls the program's on_save.
//
// Errors: none; an exception of on_save is logged once. Threads: the training thread reports boundaries,
// waits and windows; saves may end on any thread; figures() from any. on_save runs on one thread at a time,
// and never after close() has returned.
#pragma once

#include <atomic>
#include <cstdint>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class SaveBook final : public SaveKeeper {
 public:
  SaveBook(const Clock& clock, OnSave on_save) : clock_(clock), on_save_(std::move(on_save)) {}

  // The run begins at this step, which counts as durable.
  void open(std::int64_t step, SteadyTime now);
  // Costs one plain store.
  void boundary(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  void blocked(Duration time) noexcept;
  // A window of steps beside a write took this much longer than as many steps without one.
  void window(Duration longer) noexcept;
  // The run is over; finish() took `ending`.
  void finished(Duration ending) noexcept;

  RunFigures figures() const override;

  void ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
              SaveFigures& figures) noexcept override;
  void tell(const SaveEvent& event) noexcept override;
  // Waits for a call of on_save that is running.
  void close() noexcept;

 private:
  void put_risk(std::int64_t& steps, Duration& time, SteadyTime now) const HOLDFAST_REQUIRES(mutex_);

  const Clock& clock_;
  std::atomic<std::int64_t> step_{0};

  mutable Mutex mutex_;
  RunFigures known_ HOLDFAST_GUARDED_BY(mutex_);  // without what changes by itself; figures() adds that
  SteadyTime began_ HOLDFAST_GUARDED_BY(mutex_){};
  bool open_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool over_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::int64_t safe_step_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // newest durable step
  SteadyTime safe_boundary_ HOLDFAST_GUARDED_BY(mutex_){};
  std::int64_t windows_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  double longer_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // sums over windows, in seconds
  double longer_squared_ HOLDFAST_GUARDED_BY(mutex_) = 0;

  Mutex telling_;
  OnSave on_save_ HOLDFAST_GUARDED_BY(telling_);
  bool complained_ HOLDFAST_GUARDED_BY(telling_) = false;
};

}}}  // namespace holdfast::v0_2::internal
