// Keeps the figures of an attempt, and tells the program what becomes of its saves.
//
// Threads: the training thread tells the boundaries, the waits and the windows; saves end on any; figures()
// from any. The program is told by one thread at a time, and never after close() has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1::internal {

class SaveBook final : public SaveKeeper {
 public:
  SaveBook(const Clock& clock, OnSave on_save) : clock_(clock), on_save_(std::move(on_save)) {}

  // The run begins at this step, which is as good as durable.
  void open(std::int64_t step, SteadyTime now);
  // One plain store.
  void boundary(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  void blocked(Duration time) noexcept;
  // A window of steps beside a write took so much longer than as many steps without one.
  void window(Duration longer) noexcept;
  // The run is over; finish() took so long.
  void finished(Duration ending) noexcept;

  RunFigures figures() const override;

  void ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
              SaveFigures& figures) noexcept override;
  void tell(const SaveEvent& event) noexcept override;
  // Waits for a call that is under way.
  void close() noexcept;

 private:
  void put_risk(std::int64_t& steps, Duration& time, SteadyTime now) const;

  const Clock& clock_;
  std::atomic<std::int64_t> step_{0};

  mutable std::mutex mutex_;
  RunFigures known_;  // what changes by itself is added in figures()
  SteadyTime began_{};
  bool open_ = false;
  bool over_ = false;
  std::int64_t safe_step_ = 0;  // the newest durable one
  SteadyTime safe_boundary_{};
  std::int64_t windows_ = 0;
  double longer_ = 0;  // sums over the windows, in seconds
  double longer_squared_ = 0;

  std::mutex telling_;
  OnSave on_save_;
  bool complained_ = false;
};

}  // namespace holdfast::inline v1::internal
