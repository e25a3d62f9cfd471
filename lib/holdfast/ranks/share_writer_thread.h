// The thread that writes the shares of a rank other than 0 (shared_write.h), one after the other, in the
// order of hand(). A slow disk or store never delays training.
//
// Errors: the constructor throws Error if no thread can be made. hand() throws std::bad_alloc, and then took
// nothing. Failures of a share end in the save's handle.
// Threads: hand(), busy() and wait_idle() on the training thread. The destructor waits for the current share;
// Patience limits that, except for a disk that hangs.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/base/thread/thread_role.h"
#include "holdfast/ranks/shared_write.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct HandedShare {
  SharedSave save;
  std::int64_t step = 0;
  std::shared_ptr<const Snapshot> snapshot = {};  // null: this rank cannot take part …
  std::string refusal = {};                       // … because of this
  std::string own = {};  // text for own_text(step) if rank 0 writes alone; empty: none
  SharedWriteOptions how = {};
  std::shared_ptr<SaveHandle::Shared> handle = {};
  // Called on the thread once the image is not read any more, before the handle tells the outcome.
  std::function<void(SharedOutcome::Kind)> ended = {};
};

class ShareWriterThread {
 public:
  // `together` sends over `channel`. All references outlive this object.
  ShareWriterThread(SharedWriter& together, RankChannel& channel, FileSystem& files,
                    std::filesystem::path run, const Clock& clock);
  ~ShareWriterThread();
  ShareWriterThread(const ShareWriterThread&) = delete;
  ShareWriterThread& operator=(const ShareWriterThread&) = delete;

  void hand(HandedShare share);
  bool busy() const;
  bool wait_idle(std::chrono::nanoseconds limit) const;

 private:
  void run() noexcept;
  void take_part(HandedShare share) noexcept HOLDFAST_REQUIRES(thread_role_) HOLDFAST_EXCLUDES(mutex_);
  void tell_own(const HandedShare& share) HOLDFAST_REQUIRES(thread_role_);

  SharedWriter& together_;
  RankChannel& channel_;
  FileSystem& files_;
  const std::filesystem::path run_;
  const Clock& clock_;

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar idle_;
  std::deque<HandedShare> waiting_ HOLDFAST_GUARDED_BY(mutex_);
  bool working_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool stopping_ HOLDFAST_GUARDED_BY(mutex_) = false;
  ThreadRole thread_role_;
  std::string told_own_ HOLDFAST_GUARDED_BY(thread_role_);  // used by the thread alone
  std::thread thread_;                                      // last member: all others exist when it starts
};

}}}  // namespace holdfast::v0_2::internal
