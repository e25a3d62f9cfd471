// A file system that takes O_DIRECT and then refuses the reads and writes: files go on through the page
// cache.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "holdfast/io/file_system.h"
#include "support/subprocess.h"

namespace {

thread_local int refuse_with = 0;  // errno; 0: nothing is refused
thread_local int refused = 0;

bool refuses(int fd) {
  if (refuse_with == 0 || (fcntl(fd, F_GETFL) & O_DIRECT) == 0) return false;
  ++refused;
  errno = refuse_with;
  return true;
}

}  // namespace

// In front of the C library's, for this program.
extern "C" ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return refuses(fd) ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}

extern "C" ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return refuses(fd) ? -1 : syscall(SYS_pread64, fd, data, size, offset);
}

namespace holdfast::test { namespace {

TEST(DirectRefused, FilesGoOnThroughThePageCache) {
  constexpr std::size_t kSize = 1 << 16;
  const std::unique_ptr<std::byte, void (*)(void*)> block(
      static_cast<std::byte*>(std::aligned_alloc(4096, kSize)), &std::free);
  for (std::size_t i = 0; i < kSize; ++i) block.get()[i] = static_cast<std::byte>(i * 31 >> 8);
  for (const int code : {EINVAL, EOPNOTSUPP}) {
    const TemporaryFolder folder;
    const auto file = FileSystem::real().open_file(folder.path() / "f", OpenMode::create_direct);
    refused = 0;
    refuse_with = code;
    std::vector<std::byte> all(kSize);
    EXPECT_NO_THROW(file->write_at({block.get(), kSize}, 0)) << strerrorname_np(code);
    const int refused_writes = refused;
    EXPECT_NO_THROW(file->sync());
    EXPECT_NO_THROW(EXPECT_EQ(file->read_uncached_at(all, 0), kSize)) << strerrorname_np(code);
    refuse_with = 0;
    if (refused_writes == 0) GTEST_SKIP() << "this file system takes no O_DIRECT";
    EXPECT_EQ(std::memcmp(all.data(), block.get(), kSize), 0);
  }
}

}}  // namespace holdfast::test
