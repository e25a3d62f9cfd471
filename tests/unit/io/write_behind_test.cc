#include "holdfast/io/internal/write_behind.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/io/posix_file_system.h"

namespace holdfast::test { namespace {

using internal::WriteBehind;

constexpr std::uint64_t kMega = 1u << 20;
constexpr std::uint64_t kBlock = 8 * kMega;

struct Call {
  std::uint64_t offset;
  std::uint64_t length;
  unsigned flags;
};
std::vector<Call> calls;
std::vector<int> answers;  // errno of each call in turn; then 0

int record(int, off64_t offset, off64_t length, unsigned flags) {
  calls.push_back({static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length), flags});
  const int error = calls.size() <= answers.size() ? answers[calls.size() - 1] : 0;
  errno = error;
  return error == 0 ? 0 : -1;
}

class WritingBehind : public testing::Test {
 public:
  WritingBehind() {
    calls.clear();
    answers.clear();
  }
  WriteBehind behind{&record};
};

TEST_F(WritingBehind, EachBlockIsStartedAndTheOldOnesAreWaitedFor) {
  for (std::uint64_t i = 0; i < 6; ++i) EXPECT_EQ(behind.wrote(-1, i * kBlock, kBlock), 0);
  std::vector<std::uint64_t> started;
  std::vector<std::uint64_t> finished;
  for (const Call& call : calls) {
    EXPECT_EQ(call.length, kBlock);
    (call.flags == SYNC_FILE_RANGE_WRITE ? started : finished).push_back(call.offset / kBlock);
  }
  EXPECT_EQ(started, (std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(finished, (std::vector<std::uint64_t>{0, 1}));  // four stay on their way
}

TEST_F(WritingBehind, AFailedWriteBackIsAFailedWrite) {
  for (const int error : {EIO, ENOSPC, EDQUOT}) {
    answers = {0, error};
    calls.clear();
    WriteBehind fresh(&record);
    EXPECT_EQ(fresh.wrote(-1, 0, kBlock), 0);
    EXPECT_EQ(fresh.wrote(-1, kBlock, kBlock), error);
  }
  answers = {0, 0, 0, 0, 0, EIO};  // the first wait
  calls.clear();
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(behind.wrote(-1, i * kBlock, kBlock), 0);
  EXPECT_EQ(behind.wrote(-1, 4 * kBlock, kBlock), EIO);
}

TEST_F(WritingBehind, WhereThereIsNoSuchCallNothingIsDone) {
  for (const int error : {ENOSYS, EINVAL, ESPIPE}) {
    answers = {error};
    calls.clear();
    WriteBehind fresh(&record);
    for (std::uint64_t i = 0; i < 9; ++i) EXPECT_EQ(fresh.wrote(-1, i * kBlock, kBlock), 0);
    EXPECT_EQ(calls.size(), 1u) << error;
  }
}

// It is told once: whatever number it has, the next call, and fsync, would say that all is well.
TEST_F(WritingBehind, WhatAWaitReportsIsAFailedWrite) {
  for (const int error : {EPERM, EINVAL, ENOSYS, EINTR, ESTALE}) {
    answers = {0, 0, 0, 0, 0, error};
    calls.clear();
    WriteBehind fresh(&record);
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(fresh.wrote(-1, i * kBlock, kBlock), 0);
    EXPECT_EQ(fresh.wrote(-1, 4 * kBlock, kBlock), error);
  }
}

TEST_F(WritingBehind, InterruptionsAreNoFailures) {
  answers = {EINTR, EINTR, 0};
  EXPECT_EQ(behind.wrote(-1, 0, kBlock), 0);
  EXPECT_EQ(calls.size(), 3u);
}

struct Aligned {
  explicit Aligned(std::size_t size)
      : data(static_cast<std::byte*>(std::aligned_alloc(4096, size)), &std::free) {
    std::fill_n(data.get(), size, std::byte{42});
  }
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

// Of the file's pages, how many bytes the page cache holds.
std::uint64_t cached(const std::filesystem::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const std::uint64_t size = std::filesystem::file_size(path);
  void* const map = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (map == MAP_FAILED) return 0;
  std::vector<unsigned char> resident((size + 4095) / 4096);
  EXPECT_EQ(mincore(map, size, resident.data()), 0);
  munmap(map, size);
  std::uint64_t pages = 0;
  for (const unsigned char page : resident) pages += page & 1;
  return pages * 4096;
}

class Buffered : public testing::Test {
 public:
  Buffered() {
    std::string name = testing::TempDir() + "/holdfast-behind-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  ~Buffered() override { std::filesystem::remove_all(folder); }
  bool in_memory() const {
    constexpr long kTmpfs = 0x01021994;
    struct statfs found {};
    return statfs(folder.c_str(), &found) == 0 && static_cast<long>(found.f_type) == kTmpfs;
  }
  std::filesystem::path folder;
  PosixFileSystem files{{.direct = false}};
};

TEST_F(Buffered, ALargeFileDoesNotFillThePageCache) {
  if (in_memory()) GTEST_SKIP() << folder << " lies in memory: the page cache is the file";
  constexpr std::uint64_t kBlocks = 12;
  const Aligned block(kBlock);
  const auto file = files.open_file(folder / "large", OpenMode::create_direct);
  for (std::uint64_t i = 0; i < kBlocks; ++i) {
    file->write_at({block.data.get(), kBlock}, i * kBlock);
    EXPECT_LE(cached(folder / "large"), 48 * kMega) << i;
  }
  file->sync();
  EXPECT_LE(cached(folder / "large"), 8 * kMega);
  file->close();
  const auto read = files.open_file(folder / "large", OpenMode::read);
  std::vector<std::byte> all(kBlocks * kBlock);
  EXPECT_EQ(read->read_at(all, 0), all.size());
  EXPECT_EQ(all, std::vector<std::byte>(all.size(), std::byte{42}));
}

TEST_F(Buffered, SeveralThreadsMayWriteOneFile) {
  const Aligned block(kMega);
  const auto file = files.open_file(folder / "large", OpenMode::create_direct);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = t; i < 48; i += 3) file->write_at({block.data.get(), kMega}, i * kMega);
    });
  }
  for (std::thread& thread : threads) thread.join();
  file->sync();
  EXPECT_EQ(file->size(), 48 * kMega);
  file->close();
}

TEST_F(Buffered, ADeletedLargeFileIsHeldUntilItsBlocksAreLetGo) {
  const Aligned block(kBlock);
  const auto directory = files.open_directory(folder, false);
  for (const bool large : {false, true}) {
    const auto file = directory->open("f", OpenMode::create_direct);
    for (std::uint64_t i = 0; i < (large ? 3 : 0); ++i)
      file->write_at({block.data.get(), kBlock}, i * kBlock);
    file->sync();
    file->close();
    std::unique_ptr<HeldBlocks> blocks;
    EXPECT_TRUE(directory->unlink_lazily("f", blocks));
    EXPECT_FALSE(directory->status("f"));
    struct statfs found {};
    ASSERT_EQ(statfs(folder.c_str(), &found), 0);
    const bool known = found.f_type == 0xEF53 || in_memory() || found.f_type == 0x58465342 ||
                       static_cast<unsigned long>(found.f_type) == 0x9123683E;
    EXPECT_EQ(blocks != nullptr, large && known);
    EXPECT_FALSE(directory->unlink_lazily("f", blocks));
    EXPECT_EQ(blocks, nullptr);
  }
}

TEST_F(Buffered, AFileWithAnotherNameIsNotHeld) {
  const Aligned block(kBlock);
  const auto directory = files.open_directory(folder, false);
  const auto file = directory->open("f", OpenMode::create_direct);
  for (std::uint64_t i = 0; i < 2; ++i) file->write_at({block.data.get(), kBlock}, i * kBlock);
  std::filesystem::create_hard_link(folder / "f", folder / "g");
  std::unique_ptr<HeldBlocks> blocks;
  EXPECT_TRUE(directory->unlink_lazily("f", blocks));
  EXPECT_EQ(blocks, nullptr);
  EXPECT_EQ(std::filesystem::hard_link_count(folder / "g"), 1u);
}

TEST_F(Buffered, WhatIsOverwrittenKeepsItsLengthAndBytes) {
  const auto directory = files.open_directory(folder, false);
  EXPECT_EQ(directory->open("f", OpenMode::overwrite_direct), nullptr);
  const Aligned two(8192);
  const auto made = directory->open("f", OpenMode::create_direct);
  made->write_at({two.data.get(), 8192}, 0);
  made->close();
  PosixFileSystem direct;
  const auto file = direct.open_directory(folder, false)->open("f", OpenMode::overwrite_direct);
  std::fill_n(two.data.get(), 4096, std::byte{7});
  file->write_at({two.data.get(), 4096}, 0);
  EXPECT_EQ(file->size(), 8192u);
  std::vector<std::byte> all(8192);
  EXPECT_EQ(file->read_at(all, 0), 8192u);
  EXPECT_EQ(all[0], std::byte{7});
  EXPECT_EQ(all[4096], std::byte{42});
}

}}  // namespace holdfast::test
