// Runs one late copy beside training. Its thread copies and digests, and the training thread helps to copy if
// it needs the result earlier. If no thread can be made, the training thread copies everything.
//
// Errors: see arrive(). Threads: all methods on the training thread.
#pragma once

#include <memory>
#include <thread>
#include <utility>

#include "holdfast/base/mutex.h"
#include "holdfast/snapshot/piece_digests.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class LateStager {
 public:
  LateStager() = default;
  ~LateStager();  // waits for a copy in progress
  LateStager(const LateStager&) = delete;
  LateStager& operator=(const LateStager&) = delete;

  // Requires that no copy is open. `digests`: of the copy's image; null: nothing is digested.
  void begin(std::unique_ptr<LateCopy> copy, std::shared_ptr<PieceDigests> digests = nullptr);
  // Keeps a copy that has run already, so that the thread has nothing to do.
  void keep(std::unique_ptr<LateCopy> copied) { copy_ = std::move(copied); }
  bool open() const { return copy_ != nullptr; }
  // Returns when all is copied, or when a device that still copies is ordered before the training's next
  // work. The copy stays open. What is copied while the training waits here is not digested.
  void complete() noexcept;
  // Completes, and waits until the device has finished: the image is whole. The copy stays open. Exceptions
  // of LateCopy::arrive() pass through.
  void arrive();
  const LateCopy& copy() const { return *copy_; }
  // Completes and returns the copy; a device may still be copying. Requires open().
  std::unique_ptr<LateCopy> take() noexcept;

 private:
  void work();

  std::unique_ptr<LateCopy> copy_;         // used by the training thread
  std::shared_ptr<PieceDigests> digests_;  // of copy_; set before its thread begins
  Mutex mutex_;
  CondVar wake_;
  CondVar rest_;
  LateCopy* wanted_ HOLDFAST_GUARDED_BY(mutex_) = nullptr;  // the thread has not begun it yet
  bool copying_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool stopping_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}}}  // namespace holdfast::v0_2::internal
