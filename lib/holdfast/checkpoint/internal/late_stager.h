// Lets one late copy run beside the training: a thread of its own copies, and the training thread helps when
// it comes to collect before that is done. Where no thread can be made, the training thread copies all of it.
//
// Threads: the training thread; the copying thread is inside.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

class LateStager {
 public:
  LateStager() = default;
  ~LateStager();  // waits for a copy in progress
  LateStager(const LateStager&) = delete;
  LateStager& operator=(const LateStager&) = delete;

  // Requires that nothing is open.
  void begin(std::unique_ptr<LateCopy> copy);
  // The same for one that has been run already: the thread has nothing to do for it.
  void keep(std::unique_ptr<LateCopy> copied) { copy_ = std::move(copied); }
  bool open() const { return copy_ != nullptr; }
  // Returns when all is copied, or a device that still copies keeps the training's next work from it; stays
  // open.
  void complete() noexcept;
  // Completes and gives the copy back; it may be on its way still. Requires open().
  std::unique_ptr<LateCopy> take() noexcept;

 private:
  void work();

  std::unique_ptr<LateCopy> copy_;  // the training thread's
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable rest_;
  LateCopy* wanted_ = nullptr;  // not begun by the thread yet
  bool copying_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace holdfast::inline v1::internal
