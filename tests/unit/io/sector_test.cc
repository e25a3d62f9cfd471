// Devices whose sectors are not 512 bytes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "holdfast/io/file_system.h"
#include "holdfast/io/internal/direct_alignment.h"
#include "support/loop_volume.h"

namespace holdfast::test { namespace {

using internal::takes_pages;

TEST(DirectAlignment, PagesSufficeWhereTheyAreMultiplesOfWhatIsAsked) {
  EXPECT_TRUE(takes_pages({}));  // an older kernel says nothing
  EXPECT_TRUE(takes_pages({.known = true, .memory = 512, .offset = 512}));
  EXPECT_TRUE(takes_pages({.known = true, .memory = 4, .offset = 4096}));
  EXPECT_FALSE(takes_pages({.known = true, .memory = 512, .offset = 16384}));
  EXPECT_FALSE(takes_pages({.known = true, .memory = 65536, .offset = 512}));
  EXPECT_FALSE(takes_pages({.known = true}));  // not supported at all
}

bool is_direct(const std::filesystem::path& folder) {
  // Found by what the kernel says of our own descriptor.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).parent_path() != folder) continue;
    const int flags = fcntl(std::atoi(entry.path().filename().c_str()), F_GETFL);
    if (flags >= 0 && (flags & O_DIRECT) != 0) return true;
  }
  return false;
}

void write_and_read(const std::filesystem::path& folder) {
  constexpr std::size_t kSize = 3 << 20;
  const std::unique_ptr<std::byte, void (*)(void*)> block(
      static_cast<std::byte*>(std::aligned_alloc(4096, kSize)), &std::free);
  for (std::size_t i = 0; i < kSize; ++i) block.get()[i] = static_cast<std::byte>(i * 31 >> 8);
  const auto file = FileSystem::real().open_file(folder / "f", OpenMode::create_direct);
  EXPECT_TRUE(is_direct(folder));
  file->reserve(kSize);
  file->write_at({block.get() + 4096, kSize - 4096}, 4096);
  file->write_at({block.get(), 4096}, 0);
  file->truncate(kSize - 1000);
  file->sync();
  std::vector<std::byte> all(kSize - 1000 - 5);
  EXPECT_EQ(file->read_uncached_at(all, 5), all.size());
  EXPECT_EQ(std::memcmp(all.data(), block.get() + 5, all.size()), 0);
  file->close();
}

TEST(Sectors, FilesOnADeviceWithSectorsOf512BytesAreWrittenDirectly) {
  if (const std::string why = LoopVolume::why_not(VolumeKind::ext4); !why.empty()) GTEST_SKIP() << why;
  const LoopVolume volume({.kind = VolumeKind::ext4});
  write_and_read(volume.path());
}

TEST(Sectors, FilesOnADeviceWithSectorsOf4096BytesAreWrittenDirectly) {
  if (const std::string why = LoopVolume::why_not(VolumeKind::ext4); !why.empty()) GTEST_SKIP() << why;
  const LoopVolume volume({.kind = VolumeKind::ext4, .sector = 4096});
  const int fd = open(volume.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const internal::DirectAlignment alignment = internal::direct_alignment(fd);
  close(fd);
  EXPECT_EQ(alignment.known ? alignment.offset : 4096u, 4096u);
  write_and_read(volume.path());
}

}}  // namespace holdfast::test
