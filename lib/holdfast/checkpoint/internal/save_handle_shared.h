// What a SaveHandle, the Checkpointer and the writer share about one save. It goes from staging to staged and
// leaves both once and for good; every waiter is woken then. Whoever keeps the books of a run is told first.
//
// Threads: any, under its mutex; the keeper is called without it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/save_handle.h"

namespace holdfast::inline v1 {

// Threads: any.
class SaveKeeper {
 public:
  virtual ~SaveKeeper() = default;
  // A save is about to end so; whoever waits for it learns of it afterwards. Completes its figures.
  virtual void ending(std::int64_t step, SteadyTime boundary, SaveStatus outcome,
                      SaveFigures& figures) noexcept = 0;
  // It has come there.
  virtual void tell(const SaveEvent& event) noexcept = 0;
  // Of all saves so far.
  virtual RunFigures figures() const = 0;
};

struct SaveHandle::Shared {
  static constexpr std::size_t kLongestName = 63;

  // `at_boundary`: when the training stood at that step. `wanted`: somebody asked for this very save.
  Shared(std::int64_t at_step, SaveStatus begun, SteadyTime at_boundary = {}, bool wanted = false,
         std::shared_ptr<SaveKeeper> the_keeper = nullptr)
      : step(at_step),
        boundary(at_boundary),
        asked_for(wanted),
        status(begun),
        staged_at(at_boundary),
        keeper(std::move(the_keeper)) {
    text.reserve(kLongestName);
  }

  // The copy is complete, at `now`. Nothing when it was before.
  void staged(SteadyTime now) noexcept;
  // `outcome_text` is the checkpoint's name, the error, or empty. The first outcome stays. Never fails: there
  // is room for a name, and an error that finds no memory becomes a shorter one.
  void settle(SaveStatus outcome, std::string_view outcome_text) noexcept;
  template <class Change>
  void update(const Change& change) noexcept {
    const std::lock_guard lock(mutex);
    change(figures);
  }

  SaveFigures known() const {
    const std::lock_guard lock(mutex);
    return figures;
  }

  const std::int64_t step;
  const SteadyTime boundary;
  std::atomic<bool> asked_for;
  mutable std::mutex mutex;
  std::condition_variable moved;
  SaveStatus status;
  bool settling = false;
  SteadyTime staged_at{};
  std::string text;
  SaveFigures figures;
  // While it is staging: the thread whose before_update() ends that. Its own wait would never end.
  std::thread::id ended_by{};
  // The thread that alone learns how it ends (from rank 0): nor would its wait. Set before others see this.
  std::thread::id settled_by{};
  // A thread that follows rank 0 is to settle it (share_hand.h), and nobody else while it lives.
  std::atomic<bool> in_hand{false};
  const std::shared_ptr<SaveKeeper> keeper;
};

inline bool is_open(SaveStatus status) {
  return status == SaveStatus::staging || status == SaveStatus::staged;
}

}  // namespace holdfast::inline v1
