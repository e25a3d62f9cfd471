#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/io/internal/direct_alignment.h"
#include "holdfast/io/internal/posix_calls.h"
#include "holdfast/io/internal/write_behind.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The unit of all transfers with O_DIRECT. A file system that wants a larger one is written through the page
// cache.
constexpr std::uint64_t kBlock = 4096;
// Reads of any alignment are copied through a buffer of at most this size.
constexpr std::size_t kBounce = 1u << 20;

// Aligned operator new needs the matching delete; plain delete would be undefined.
struct FreeAligned {
  void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kBlock}); }
};
using AlignedBuffer = std::unique_ptr<std::byte, FreeAligned>;

AlignedBuffer make_aligned(std::size_t bytes, const std::string& path) {
  // Without exceptions: a missing buffer is an IoError of this file, as for every other failed read.
  auto* memory = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kBlock}, std::nothrow));
  if (memory == nullptr) fail("read", path, ENOMEM);
  return AlignedBuffer(memory);
}

bool aligned(const void* memory, std::uint64_t offset, std::uint64_t size) {
  return (reinterpret_cast<std::uintptr_t>(memory) | offset | size) % kBlock == 0;
}

// Network file systems answer EOPNOTSUPP instead of EINVAL.
bool refuses_direct(int code) { return code == EINVAL || code == EOPNOTSUPP; }

class PosixFile final : public File {
 public:
  PosixFile(Descriptor descriptor, std::string path, FileSettings settings)
      : descriptor_(std::move(descriptor)), path_(std::move(path)), settings_(settings) {
    // Set after the creation: open(O_CREAT | O_DIRECT) can fail and leave the file behind.
    // Without O_DIRECT the page cache serves: slower, and equally safe, because sync() covers it.
    if (settings_.direct) direct_ = takes_pages(direct_alignment(fd())) && set_direct(true);
  }

  std::uint64_t size() const override {
    struct stat status {};
    if (fstat(fd(), &status) != 0) fail("fstat", path_);
    return static_cast<std::uint64_t>(status.st_size);
  }

  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    // Readers may ask for any range; only O_DIRECT has this rule.
    if (direct_ && !aligned(buffer.data(), offset, buffer.size())) return read_bounced(fd(), buffer, offset);
    return read_all(fd(), buffer, offset);
  }

  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    // The second descriptor costs an open, so only files that are read back get one.
    std::call_once(uncached_once_, [this] { open_uncached(); });
    if (uncached_works_) {
      try {
        if (aligned(buffer.data(), offset, buffer.size())) return read_all(uncached_.get(), buffer, offset);
        return read_bounced(uncached_.get(), buffer, offset);
      } catch (const IoError& error) {
        if (!refuses_direct(error.code())) throw;
        uncached_works_ = false;
      }
    }
    // Only clean pages can be dropped, so a caller that wants the device's bytes must sync first. The pages
    // are dropped again after the read, so that a large verification does not push out the training's pages.
    const auto advise = [&](int advice) {
      posix_fadvise(fd(), static_cast<off_t>(offset), static_cast<off_t>(buffer.size()), advice);
    };
    advise(POSIX_FADV_DONTNEED);
    // Dropped pages would come back one at a time; this asks for the whole range at once.
    advise(POSIX_FADV_WILLNEED);
    const std::size_t count = read_at(buffer, offset);
    advise(POSIX_FADV_DONTNEED);
    return count;
  }

  void write_at(std::span<const std::byte> data, std::uint64_t offset) override {
    bool buffered = false;
    while (!data.empty()) {
      // write(), because pwrite() fails on a pipe, and the kernel chooses the offset in append mode anyway.
      const ssize_t written = retry([&] {
        return settings_.mode == OpenMode::append
                   ? ::write(fd(), data.data(), data.size())
                   : pwrite(fd(), data.data(), data.size(), static_cast<off_t>(offset));
      });
      if (written < 0) {
        // The file system accepted O_DIRECT and refuses the write. Continue through the page cache.
        // The exchange allows this once for each call: a second refusal would loop for ever.
        if (!refuses_direct(errno) || !settings_.direct || std::exchange(buffered, true))
          fail("write", path_);
        leave_direct();
        continue;
      }
      // Without progress and without an error the loop would never end.
      if (written == 0) fail("write", path_, EIO);
      // Only for pages in the cache: O_DIRECT has nothing to write behind.
      if (is_large() && !direct_ && settings_.write_behind)
        write_back(offset, static_cast<std::uint64_t>(written));
      data = data.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
  }

  void reserve(std::uint64_t length) override {
    if (length == 0) return;
    // Not posix_fallocate(): where the call is missing, glibc would write every block once more.
    if (retry([&] { return fallocate(fd(), 0, 0, static_cast<off_t>(length)); }) == 0) return;
    // Without the call a full disk shows later, as ENOSPC of a write. That costs one save and nothing else.
    if (errno != EOPNOTSUPP && errno != ENOSYS) fail("fallocate", path_);
  }

  void truncate(std::uint64_t length) override {
    if (retry([&] { return ftruncate(fd(), static_cast<off_t>(length)); }) != 0) fail("ftruncate", path_);
  }

  void sync() override {
    // Never call fsync again: after a failure the kernel may drop the dirty pages and then report success.
    if (sync_error_ != 0) fail("fsync", path_, sync_error_);
    if (fsync(fd()) != 0) {
      sync_error_ = errno;
      fail("fsync", path_, sync_error_);
    }
    // The pages are clean now. The training needs the memory more than a file that nobody reads soon.
    if (is_large() && !direct_) posix_fadvise(fd(), 0, 0, POSIX_FADV_DONTNEED);
  }

  void let_others_read() override {
    if (fchmod(fd(), 0644) != 0) fail("fchmod", path_);
  }

  void take_access_of(const FileStatus& replaced) override {
    struct stat own {};
    if (fstat(fd(), &own) != 0) fail("fstat", path_);
    mode_t mode = replaced.mode & 0777U;
    const bool same = own.st_uid == replaced.owner && own.st_gid == replaced.group;
    // Only root may give a file away; everybody may give it to one of their groups.
    if (!same && fchown(fd(), replaced.owner, replaced.group) != 0 && own.st_gid != replaced.group &&
        fchown(fd(), static_cast<uid_t>(-1), replaced.group) != 0) {
      // What was for one group must not become readable for another one.
      mode &= ~mode_t{070};
    }
    // After the owner: a change of the owner may clear bits of the mode. Some file systems have no modes.
    if (fchmod(fd(), mode) != 0 && errno != EPERM && errno != EOPNOTSUPP) fail("fchmod", path_);
  }

  void close() override {
    if (!descriptor_) return;
    // Nobody checks this descriptor's close, because nothing was written through it.
    uncached_ = Descriptor();
    // EINTR counts as a failure too: the descriptor is gone, and whether the data was flushed is unknown.
    if (::close(descriptor_.release()) != 0) fail("close", path_);
  }

 private:
  int fd() const { return descriptor_.get(); }

  bool set_direct(bool on) {
    // F_SETFL replaces all flags, so read the others first.
    const int flags = fcntl(fd(), F_GETFL);
    return flags >= 0 && fcntl(fd(), F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
  }

  // True for checkpoints, false for the small files beside them.
  bool is_large() const {
    return settings_.mode == OpenMode::create_direct || settings_.mode == OpenMode::overwrite_direct;
  }

  void write_back(std::uint64_t offset, std::uint64_t length) {
    const int error = write_behind_.wrote(fd(), offset, length);
    if (error == 0) return;
    // The kernel reports a failed write-back once; a later fsync may return success.
    sync_error_ = error;
    fail("write", path_, error);
  }

  void leave_direct() {
    // Writer threads share the file and may all be refused at once; one of them switches O_DIRECT off.
    const MutexLock lock(direct_mutex_);
    if (direct_.exchange(false)) set_direct(false);
  }

  void open_uncached() const {
    if (!settings_.uncached_direct) return;
    // Opens the inode again instead of the path: the file may have another name by now. O_DIRECT belongs to
    // the open file, so a descriptor of its own is needed.
    const std::string self = "/proc/self/fd/" + std::to_string(fd());
    uncached_ = Descriptor(retry([&] { return open(self.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC); }));
    uncached_works_ = static_cast<bool>(uncached_);
  }

  std::size_t read_all(int from, std::span<std::byte> buffer, std::uint64_t offset) const {
    std::size_t total = 0;
    // A read may return less than was asked for, for example after a signal.
    while (total < buffer.size()) {
      const ssize_t count = retry([&] {
        return pread(from, buffer.data() + total, buffer.size() - total, static_cast<off_t>(offset + total));
      });
      if (count < 0) {
        // The file's end is not a multiple of a block: O_DIRECT cannot read on from there, and nothing
        // follows.
        if (errno == EINVAL && total % kBlock != 0) break;
        fail("read", path_);
      }
      if (count == 0) break;
      total += static_cast<std::size_t>(count);
    }
    return total;
  }

  // For O_DIRECT and an unaligned range.
  std::size_t read_bounced(int from, std::span<std::byte> buffer, std::uint64_t offset) const {
    // From the block that holds the first byte to the one that holds the last.
    const std::uint64_t begin = offset / kBlock * kBlock;
    const std::uint64_t end = (offset + buffer.size() + kBlock - 1) / kBlock * kBlock;
    const auto bounce =
        make_aligned(static_cast<std::size_t>(std::min<std::uint64_t>(end - begin, kBounce)), path_);
    std::size_t total = 0;
    for (std::uint64_t at = begin; at < end; at += kBounce) {
      const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(end - at, kBounce));
      const std::size_t got = read_all(from, {bounce.get(), wanted}, at);
      const std::size_t skip = at < offset ? static_cast<std::size_t>(offset - at) : 0;
      if (got > skip) {
        const std::size_t useful = std::min(got - skip, buffer.size() - total);
        std::memcpy(buffer.data() + total, bounce.get() + skip, useful);
        total += useful;
      }
      // A short read is the end of the file.
      if (got < wanted) break;
    }
    return total;
  }

  Descriptor descriptor_;
  std::string path_;
  FileSettings settings_;
  // Atomic, because several threads write to one file at different offsets.
  std::atomic<bool> direct_{false};
  Mutex direct_mutex_;
  std::atomic<int> sync_error_{0};
  WriteBehind write_behind_;

  mutable std::once_flag uncached_once_;
  mutable Descriptor uncached_;
  mutable std::atomic<bool> uncached_works_{false};
};

}  // namespace

std::unique_ptr<File> make_posix_file(Descriptor descriptor, std::string path, FileSettings settings) {
  return std::make_unique<PosixFile>(std::move(descriptor), std::move(path), settings);
}

}}}  // namespace holdfast::v0_2::internal
