// Keeps the figures of an attempt, and calls the program's on_save.
//
// Errors: none; an exception of on_save is logged once. Threads: the training thread reports boundaries,
// waits and windows; saves may end on any thread; figures() from any. on_save runs on one thread at a time,
// and never after close() has returned.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// News of a mirror: what is home.
struct HomeNews {
  std::int64_t step = -1;  // of the newest checkpoint there; -1: none
  bool of_this_attempt = false;
  Duration took{};  // from durable here to home; zero: not measured
  bool failing = false;
  std::int64_t copying = -1;  // step that is on its way; -1: none, 0: of an earlier attempt
};

class SaveBook final : public SaveKeeper {
 public:
  SaveBook(const Clock& clock, OnSave on_save) : clock_(clock), on_save_(std::move(on_save)) {}

  // Saves that begin from now on hold it until they have settled (RankChannel::saves_in_flight()).
  void count_in(std::weak_ptr<const void> in_flight) noexcept { in_flight_ = std::move(in_flight); }
  std::shared_ptr<const void> in_flight() const noexcept override { return in_flight_.lock(); }
  // The run begins at this step, which counts as durable.
  void open(std::int64_t step, SteadyTime now);
  // Costs one plain store.
  void boundary(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  std::int64_t step() const noexcept { return step_.load(std::memory_order_relaxed); }
  void blocked(Duration time) noexcept;
  // A window of steps beside a write took this much longer than as many steps without one.
  void window(Duration longer) noexcept;
  void home(const HomeNews& news) noexcept;
  // No more news: nobody waits any longer.
  void no_more_news() noexcept;
  // Until the mirror has brought home all that is durable; zero: it has, or there is no mirror. A long time
  // while the mirror fails. `and_newer`: the question is about a newer save as well, for which the mirror
  // must be free.
  Duration going_home(bool and_newer) const noexcept;
  // The newest step that is home; −1: none. nullopt: there is no mirror.
  std::optional<std::int64_t> home_step() const noexcept;
  // The run is over; finish() took `ending`.
  void finished(Duration ending) noexcept;

  RunFigures figures() const override;
  HomeStatus wait_home(std::int64_t step, std::chrono::nanoseconds limit) const override;

  void ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
              SaveFigures& figures) noexcept override;
  void tell(const SaveEvent& event) noexcept override;
  // Waits for a call of on_save that is running.
  void close() noexcept;

 private:
  void put_risk(std::int64_t& steps, Duration& time, SteadyTime now) const HOLDFAST_REQUIRES(mutex_);
  std::optional<HomeFigures> home_figures(SteadyTime now) const HOLDFAST_REQUIRES(mutex_);
  SteadyTime boundary_of(std::int64_t step) const HOLDFAST_REQUIRES(mutex_);

  const Clock& clock_;
  std::weak_ptr<const void> in_flight_;
  std::atomic<std::int64_t> step_{0};

  mutable Mutex mutex_;
  RunFigures known_ HOLDFAST_GUARDED_BY(mutex_);  // without what changes by itself; figures() adds that
  SteadyTime began_ HOLDFAST_GUARDED_BY(mutex_){};
  bool open_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool over_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::int64_t safe_step_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // newest durable step
  SteadyTime safe_boundary_ HOLDFAST_GUARDED_BY(mutex_){};
  SteadyTime safe_since_ HOLDFAST_GUARDED_BY(mutex_){};  // when it was acknowledged
  std::deque<std::pair<std::int64_t, SteadyTime>> boundaries_
      HOLDFAST_GUARDED_BY(mutex_);  // of durable saves
  std::optional<HomeNews> home_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime home_boundary_ HOLDFAST_GUARDED_BY(mutex_){};
  SteadyTime waiting_since_ HOLDFAST_GUARDED_BY(mutex_){};  // for the mirror's next news
  bool no_more_news_ HOLDFAST_GUARDED_BY(mutex_) = false;
  mutable CondVar home_moved_;
  std::int64_t windows_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  double longer_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // sums over windows, in seconds
  double longer_squared_ HOLDFAST_GUARDED_BY(mutex_) = 0;

  const ProgramSignals program_signals_;
  Mutex telling_;
  OnSave on_save_ HOLDFAST_GUARDED_BY(telling_);
  bool complained_ HOLDFAST_GUARDED_BY(telling_) = false;
};

}}}  // namespace holdfast::v0_2::internal
