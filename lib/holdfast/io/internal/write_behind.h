// Keeps a large buffered write from filling the page cache. It starts the write-back of each block at once,
// waits for blocks that are 32 MiB behind, and drops their clean pages. So the final fsync has little left to
// do, and the training's own files stay cached.
//
// It gives no durability (no metadata, no flush of the disk's cache): fsync still does. But a wait here may
// consume the kernel's only report of a failed write-back, and fsync then returns success. So an error that
// wrote() returns counts as a failed write.
//
// Errors: return value. Threads: wrote() may run on several at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class WriteBehind {
 public:
  // The system call; tests replace it.
  using SyncRange = int (*)(int fd, off64_t offset, off64_t length, unsigned flags);
  static int sync_range(int fd, off64_t offset, off64_t length, unsigned flags);

  explicit WriteBehind(SyncRange call = &sync_range) : call_(call) {}

  // Call it after each write. Returns 0, or the errno of a failed write-back. If the system or the file
  // system lacks the call, it does nothing from then on.
  int wrote(int fd, std::uint64_t offset, std::uint64_t length);

 private:
  struct Range {
    std::uint64_t offset;
    std::uint64_t length;
  };
  int sync(int fd, Range range, unsigned flags);

  const SyncRange call_;
  std::atomic<bool> works_{true};
  Mutex mutex_;
  std::deque<Range> under_way_ HOLDFAST_GUARDED_BY(mutex_);  // being written back, oldest first
  std::uint64_t bytes_ HOLDFAST_GUARDED_BY(mutex_) = 0;      // sum of their lengths
};

}}}  // namespace holdfast::v0_2::internal
