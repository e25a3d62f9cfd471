// What a SaveHandle, the Checkpointer and the writer share about one save. It goes from staging to staged,
// and leaves both once, for good; that wakes every waiter. The keeper of the run's figures is told before
// them.
//
// Errors: none. Threads: any, under its mutex; the keeper is called without the mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/writing/save_handle.h"

namespace holdfast { inline namespace v0_2 {

// Receives every save's course. Threads: any.
class SaveKeeper {
 public:
  virtual ~SaveKeeper() = default;
  // A save is about to end with `outcome`; its waiters learn that afterwards. Completes its figures.
  virtual void ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
                      SaveFigures& figures) noexcept = 0;
  // The save has reached that status.
  virtual void tell(const SaveEvent& event) noexcept = 0;
  // Figures of all saves so far.
  virtual RunFigures figures() const = 0;
  // A save holds it until it has settled.
  virtual std::shared_ptr<const void> in_flight() const noexcept { return {}; }
  // Waits until a step that is not older is home, for `limit` at most.
  virtual HomeStatus wait_home(std::int64_t /*step*/, std::chrono::nanoseconds /*limit*/) const {
    return HomeStatus::no_mirror;
  }
};

struct SaveHandle::Shared {
  static constexpr std::size_t kLongestName = 63;

  // `at_boundary`: when training stood at that step.
  Shared(std::int64_t at_step, SaveStatus begun, SteadyTime at_boundary = {},
         std::shared_ptr<SaveKeeper> the_keeper = nullptr)
      : step(at_step),
        boundary(at_boundary),
        status(begun),
        staged_at(at_boundary),
        keeper(std::move(the_keeper)),
        in_flight(keeper ? keeper->in_flight() : nullptr) {
    text.reserve(kLongestName);
  }

  // The copy was completed at `now`. Has no effect the second time.
  void staged(SteadyTime now) noexcept;
  // `outcome_text` is the checkpoint's name, the error, or empty. The first outcome stays. Never fails:
  // memory for a name is reserved, and an error without memory becomes shorter.
  void settle(SaveStatus outcome, std::string_view outcome_text) noexcept;
  // Notes what its write cost; the write began at `began`.
  void written(SteadyTime began, std::uint64_t bytes, Duration write, Duration commit) noexcept;
  // Another process writes it, and nothing here is worth waiting for.
  void left_to_others() noexcept {
    const MutexLock lock(mutex);
    in_flight.reset();
  }
  template <class Change>
  void update(const Change& change) noexcept {
    const MutexLock lock(mutex);
    change(figures);
  }

  SaveFigures known() const {
    const MutexLock lock(mutex);
    return figures;
  }

  const std::int64_t step;
  const SteadyTime boundary;
  mutable Mutex mutex;
  CondVar moved;
  SaveStatus status HOLDFAST_GUARDED_BY(mutex);
  bool settling HOLDFAST_GUARDED_BY(mutex) = false;
  SteadyTime staged_at HOLDFAST_GUARDED_BY(mutex){};
  std::string text HOLDFAST_GUARDED_BY(mutex);
  SaveFigures figures HOLDFAST_GUARDED_BY(mutex);
  // While staging: the thread whose before_update() ends it. That thread must not wait for itself.
  std::thread::id ended_by{};
  // If another process writes: the thread that alone learns the outcome. It must not wait either. Set before
  // others see this.
  std::thread::id settled_by{};
  // True while another thread than the writer's has taken this save: only that thread settles it.
  std::atomic<bool> taken{false};
  // No file will come of it. Set before anybody is told of the failure, which is before it is settled.
  std::atomic<bool> lost{false};
  const std::shared_ptr<SaveKeeper> keeper;
  // Null once this process has nothing more to do for this save.
  std::shared_ptr<const void> in_flight HOLDFAST_GUARDED_BY(mutex);
};

inline bool is_open(SaveStatus status) {
  return status == SaveStatus::staging || status == SaveStatus::staged;
}

}}  // namespace holdfast::v0_2
