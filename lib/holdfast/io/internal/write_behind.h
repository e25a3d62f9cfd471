// Keeps a large file that is written through the page cache from filling it: the write-back of each block
// starts at once, and a few blocks behind it is waited for and the clean pages are dropped. The fsync at the
// end then has little left to do, and the training's own files stay cached.
//
// Says nothing about durability (no metadata, no disk cache): fsync still does. But where it waits it may be
// the one that is told of a failed write-back, and fsync then claims success: what it reports is a failed
// write.
//
// Threads: wrote() from several at once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>

namespace holdfast::inline v1::internal {

class WriteBehind {
 public:
  // The system call, for tests.
  using SyncRange = int (*)(int fd, off64_t offset, off64_t length, unsigned flags);
  static int sync_range(int fd, off64_t offset, off64_t length, unsigned flags);

  explicit WriteBehind(SyncRange call = &sync_range) : call_(call) {}

  // To be called after each write. 0, or the errno of a write-back that failed. Where the system or the file
  // system has no such call it does nothing from then on.
  int wrote(int fd, std::uint64_t offset, std::uint64_t length);

 private:
  struct Range {
    std::uint64_t offset;
    std::uint64_t length;
  };
  int sync(int fd, Range range, unsigned flags);

  const SyncRange call_;
  std::atomic<bool> works_{true};
  std::mutex mutex_;
  std::deque<Range> under_way_;  // oldest first
  std::uint64_t bytes_ = 0;      // of them
};

}  // namespace holdfast::inline v1::internal
