#include "holdfast/io/internal/write_behind.h"

#include <fcntl.h>

#include <cerrno>
#include <vector>

#include "holdfast/io/internal/posix_calls.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Bytes in write-back at a time: enough to keep the device busy while the next block is copied.
constexpr std::uint64_t kUnderWay = 32u << 20;

}  // namespace

int WriteBehind::sync_range(int fd, off64_t offset, off64_t length, unsigned flags) {
  return ::sync_file_range(fd, offset, length, flags);
}

int WriteBehind::sync(int fd, Range range, unsigned flags) {
  const auto call = [&] {
    return call_(fd, static_cast<off64_t>(range.offset), static_cast<off64_t>(range.length), flags);
  };
  // A waiting call reports how the write-back went, with any errno (a network file system passes on its
  // server's). The kernel reports that only once: neither a repeated call nor fsync would see it. So no
  // retry, and no errno is taken for "not supported".
  constexpr unsigned kWaits = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER;
  if ((flags & kWaits) != 0) return call() == 0 ? 0 : errno;
  // Without a wait the call only starts the write-back, so repeating it loses no report.
  if (retry(call) == 0) return 0;
  // These say that the call does not work here. fsync alone then writes everything, later and in one piece.
  if (errno != ENOSYS && errno != EINVAL && errno != ESPIPE && errno != EPERM) return errno;
  works_ = false;
  return 0;
}

int WriteBehind::wrote(int fd, std::uint64_t offset, std::uint64_t length) {
  // Other threads may have found out meanwhile that the call does not work.
  if (!works_) return 0;
  if (const int error = sync(fd, {offset, length}, SYNC_FILE_RANGE_WRITE)) return error;
  std::vector<Range> behind;
  {
    const MutexLock lock(mutex_);
    under_way_.push_back({offset, length});
    bytes_ += length;
    // At least one range stays under way: waiting for the one that just began would leave the device idle.
    while (bytes_ > kUnderWay && under_way_.size() > 1) {
      bytes_ -= under_way_.front().length;
      behind.push_back(under_way_.front());
      under_way_.pop_front();
    }
  }
  // Outside the lock: the wait takes as long as the device, and other writers must go on.
  for (const Range range : behind) {
    constexpr unsigned kThrough =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (const int error = sync(fd, range, kThrough)) return error;
    if (!works_) return 0;
    // Written back and clean, so the pages can go before they push out the training's pages.
    posix_fadvise(fd, static_cast<off_t>(range.offset), static_cast<off_t>(range.length),
                  POSIX_FADV_DONTNEED);
  }
  return 0;
}

}}}  // namespace holdfast::v0_2::internal
