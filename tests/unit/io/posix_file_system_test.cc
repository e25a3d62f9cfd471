// What only the machine's own file system can show: modes, mounts, FIFOs, full disks, descriptors.
#include "holdfast/io/posix_file_system.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "support/child_process.h"

namespace holdfast { namespace {

class Posix : public testing::Test {
 public:
  Posix() {
    umask(022);
    std::string name = testing::TempDir() + "/holdfast-posix-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = std::filesystem::canonical(name);
  }
  ~Posix() override { std::filesystem::remove_all(folder); }

  std::filesystem::path folder;
  FileSystem& fs = FileSystem::real();
};

unsigned mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST_F(Posix, NewFilesAndFoldersOfARunAreOurs) {
  fs.open_directory(folder / "a/b", true)->open("f", OpenMode::create)->close();
  EXPECT_EQ(mode_of(folder / "a"), 0755u);
  EXPECT_EQ(mode_of(folder / "a/b"), 0700u);
  EXPECT_EQ(mode_of(folder / "a/b/f"), 0600u);
}

TEST_F(Posix, FilesForOtherProgramsHaveTheModeOfAnyNewFile) {
  umask(027);
  fs.make_shared_directory(folder / "a/b")->open("f", OpenMode::create_shared)->close();
  fs.open_file(folder / "m", OpenMode::append)->close();
  umask(022);
  EXPECT_EQ(mode_of(folder / "a/b"), 0750u);
  EXPECT_EQ(mode_of(folder / "a/b/f"), 0640u);
  EXPECT_EQ(mode_of(folder / "m"), 0640u);
}

TEST_F(Posix, AFileTakesTheAccessOfTheOneThatItReplaces) {
  const auto directory = fs.open_directory(folder, true);
  directory->open("old", OpenMode::create)->close();
  ASSERT_EQ(chmod((folder / "old").c_str(), 0664), 0);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown((folder / "old").c_str(), 4711, 4712), 0);
  }
  const auto file = directory->open("new", OpenMode::create);
  file->take_access_of(directory->status("old").value());
  const FileStatus made = directory->status("new").value();
  EXPECT_EQ(made.mode, 0664u);
  EXPECT_EQ(made.owner, root ? 4711u : geteuid());
  EXPECT_EQ(made.group, root ? 4712u : getegid());
}

TEST_F(Posix, PathsMayBeRelativeEndInASlashAndContainLinks) {
  std::filesystem::create_directory(folder / "real");
  std::filesystem::create_directory_symlink("real", folder / "link");
  ASSERT_NE(fs.open_directory((folder / "link/run/").native(), true), nullptr);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "real/run"));
  ASSERT_NE(fs.open_directory(folder / "link/../other", true), nullptr);
  EXPECT_TRUE(std::filesystem::is_directory(folder / "other"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder);
  const auto relative = fs.open_directory("here", true);
  std::filesystem::current_path(before);
  EXPECT_EQ(relative->path(), folder / "here");
  relative->open("f", OpenMode::create)->close();
  EXPECT_TRUE(std::filesystem::exists(folder / "here/f"));
}

TEST_F(Posix, AFifoIsRefusedAndDoesNotHang) {
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  const auto dir = fs.open_directory(folder, false);
  EXPECT_THROW(dir->open("fifo", OpenMode::read), IoError);
  EXPECT_THROW(dir->open("fifo", OpenMode::append), IoError);
}

TEST_F(Posix, AppendingOutsideRunDirectoriesTakesDevicesAndPipes) {
  const std::string text = "line\n";
  fs.open_file("/dev/null", OpenMode::append)->write_at(std::as_bytes(std::span(text)), 0);
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto end = fs.open_file("/dev/fd/" + std::to_string(ends[1]), OpenMode::append);
  end->write_at(std::as_bytes(std::span(text)), 0);
  char got[8];
  EXPECT_EQ(read(ends[0], got, sizeof got), 5);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Posix, AFullDeviceSaysSo) {
  const auto full = fs.open_file("/dev/full", OpenMode::append);
  try {
    full->write_at(std::as_bytes(std::span("x", 1)), 0);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ENOSPC);
    EXPECT_EQ(
        std::string(error.what()).rfind("write /dev/full: No space left on device (ENOSPC); free space", 0),
        0u)
        << error.what();
  }
}

TEST_F(Posix, NoDescriptorLeaksAndNoneIsInherited) {
  const auto open_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = open_fds();
  {
    const auto dir = fs.open_directory(folder, false);
    const auto file = dir->open("f", OpenMode::create_direct);
    std::byte byte{};
    file->read_uncached_at({&byte, 1}, 0);
    dir->list();
    EXPECT_EQ(dir->open("f", OpenMode::create), nullptr);
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      const auto target = std::filesystem::read_symlink(entry.path(), error);
      if (target.native().rfind(folder.native(), 0) != 0) continue;
      EXPECT_NE(fcntl(std::atoi(entry.path().filename().c_str()), F_GETFD) & FD_CLOEXEC, 0) << target;
    }
    file->close();
  }
  EXPECT_EQ(open_fds(), before);
}

TEST_F(Posix, WhatTheDeviceRefusesDirectlyGoesThroughThePageCache) {
  const auto file = fs.open_directory(folder, false)->open("f", OpenMode::create_direct);
  const std::string text(5000, 'x');  // no multiple of a block: O_DIRECT says EINVAL
  file->write_at(std::as_bytes(std::span(text)), 3);
  file->write_at(std::as_bytes(std::span(text)), 5003);
  EXPECT_EQ(file->size(), 10003u);
  std::string back(10000, '?');
  EXPECT_EQ(file->read_at(std::as_writable_bytes(std::span(back)), 3), 10000u);
  EXPECT_EQ(back, text + text);
}

TEST_F(Posix, SeveralThreadsWriteAndReadOneFile) {
  constexpr std::size_t kPart = 1u << 18;
  const auto file = fs.open_directory(folder, false)->open("f", OpenMode::create_direct);
  file->reserve(8 * kPart);
  struct alignas(4096) Part {
    char text[kPart];
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const auto part = std::make_unique<Part>();
        for (std::size_t i = t; i < 8; i += 4) {
          std::memset(part->text, static_cast<int>('a' + i), kPart);
          file->write_at(std::as_bytes(std::span(part->text)), i * kPart);
          std::vector<std::byte> back(kPart);
          EXPECT_EQ(file->read_uncached_at(back, i * kPart), kPart);
          EXPECT_EQ(std::memcmp(back.data(), part->text, kPart), 0);
        }
      });
    }
  }
  file->sync();
  file->close();
  std::ifstream in(folder / "f");
  for (char c = 'a'; c < 'i'; ++c) {
    std::string part(kPart, '?');
    in.read(part.data(), kPart);
    EXPECT_EQ(part, std::string(kPart, c));
  }
}

TEST_F(Posix, KnowsMountPoints) {
  EXPECT_TRUE(fs.is_mount_point("/proc"));
  EXPECT_TRUE(fs.is_mount_point("/proc/"));
  EXPECT_TRUE(fs.is_mount_point("/"));
  EXPECT_FALSE(fs.is_mount_point("/proc/self"));
  EXPECT_FALSE(fs.is_mount_point(folder));
  EXPECT_FALSE(fs.is_mount_point(folder / "missing"));
  EXPECT_FALSE(fs.is_mount_point("/etc/passwd"));
  EXPECT_TRUE(fs.on_root_file_system("/"));
  EXPECT_TRUE(fs.on_root_file_system("/no/such/folder"));
  EXPECT_FALSE(fs.on_root_file_system("/proc/self"));
  EXPECT_FALSE(fs.on_root_file_system("/dev/shm/not/there/yet"));
}

TEST_F(Posix, WithoutPermissionTheMessageNamesTheDirectory) {
  std::filesystem::permissions(folder, std::filesystem::perms(0555));
  test::ChildProcess child([&] {
    if (geteuid() == 0 && setuid(65534) != 0) return 1;  // root may do anything
    try {
      fs.open_directory(folder / "run", true);
    } catch (const IoError& error) {
      return error.code() == EACCES && error.path() == folder / "run" ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(child.wait().exit_code, 0);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

}}  // namespace holdfast
