// The thread by which a rank other than 0 writes its share of the checkpoints (shared_write.h): one after the
// other, in the order in which they were handed over. Never in the training's way, whatever disk and store
// do.
//
// Errors: the constructor throws Error when the system refuses a thread; hand() std::bad_alloc, and then took
// nothing. What goes wrong with a share ends in the save's handle. Threads: hand(), busy() and wait_idle() on
// the training thread. The destructor waits for the share in hand; Patience limits that, but for a disk that
// hangs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/checkpoint/internal/save_handle_shared.h"
#include "holdfast/checkpoint/shared_write.h"

namespace holdfast::inline v1::internal {

struct HandedShare {
  SharedSave save;
  std::int64_t step = 0;
  std::shared_ptr<const Snapshot> snapshot = {};  // null: this rank cannot take part
  std::string refusal = {};                       // because of this
  std::string own = {};  // what own_text(step) is to say if rank 0 writes alone; empty: nothing
  SharedWriteOptions how = {};
  std::shared_ptr<SaveHandle::Shared> handle = {};
};

class ShareHand {
 public:
  // `together` tells over `companions`. All references outlive this object.
  ShareHand(SharedWriter& together, Companions& companions, FileSystem& files, std::filesystem::path run,
            const Clock& clock);
  ~ShareHand();
  ShareHand(const ShareHand&) = delete;
  ShareHand& operator=(const ShareHand&) = delete;

  void hand(HandedShare share);
  bool busy() const;
  bool wait_idle(std::chrono::nanoseconds limit) const;

 private:
  void run() noexcept;
  void take_part(HandedShare share) noexcept;
  void tell_own(const HandedShare& share);

  SharedWriter& together_;
  Companions& companions_;
  FileSystem& files_;
  const std::filesystem::path run_;
  const Clock& clock_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  mutable std::condition_variable idle_;
  std::deque<HandedShare> waiting_;
  bool working_ = false;
  bool stopping_ = false;
  std::string told_own_;  // the thread's
  std::thread thread_;    // last: everything above exists when it starts
};

}  // namespace holdfast::inline v1::internal
