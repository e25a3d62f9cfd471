// A network file system that has forgotten a directory (ESTALE): it is opened again by its path.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <functional>

#include "holdfast/base/error.h"
#include "holdfast/io/posix_file_system.h"
#include "support/subprocess.h"

namespace {

thread_local int stale = -1;  // a descriptor that the server has forgotten
thread_local bool stays_stale = false;

bool refuses(int fd) {
  if (fd < 0 || fd != stale) return false;
  errno = ESTALE;
  return true;
}

}  // namespace

// In front of the C library's, for this program.
extern "C" int openat(int fd, const char* name, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return refuses(fd) ? -1 : static_cast<int>(syscall(SYS_openat, fd, name, flags, mode));
}
extern "C" int mkdirat(int fd, const char* name, mode_t mode) {
  return refuses(fd) ? -1 : static_cast<int>(syscall(SYS_mkdirat, fd, name, mode));
}
extern "C" int unlinkat(int fd, const char* name, int flags) {
  return refuses(fd) ? -1 : static_cast<int>(syscall(SYS_unlinkat, fd, name, flags));
}
extern "C" int fstatat(int fd, const char* name, struct stat* found, int flags) {
  return refuses(fd) ? -1 : static_cast<int>(syscall(SYS_newfstatat, fd, name, found, flags));
}
extern "C" int renameat(int from, const char* name, int to, const char* next) {
  return refuses(from) ? -1 : static_cast<int>(syscall(SYS_renameat2, from, name, to, next, 0));
}
extern "C" int renameat2(int from, const char* name, int to, const char* next, unsigned flags) {
  return refuses(from) ? -1 : static_cast<int>(syscall(SYS_renameat2, from, name, to, next, flags));
}
extern "C" int fsync(int fd) { return refuses(fd) ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
extern "C" int dup3(int from, int to, int flags) {
  if (to == stale && !stays_stale) stale = -1;
  return static_cast<int>(syscall(SYS_dup3, from, to, flags));
}

namespace holdfast::test { namespace {

namespace fs = std::filesystem;

int descriptor_of(const fs::path& path) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone) == fs::canonical(path)) {
      return std::atoi(entry.path().filename().c_str());
    }
  }
  return -1;
}

class StaleDirectory : public testing::Test {
 public:
  StaleDirectory() : files({.openat2 = false}), path(folder.path() / "run") {
    directory = files.open_directory(path, true);
    write_text(path / "a", "first");
    fd = descriptor_of(path);
  }
  ~StaleDirectory() override {
    stale = -1;
    stays_stale = false;
  }
  // That it works, and had to open the directory again.
  void expect_goes_on(const char* what, const std::function<void()>& work) {
    stale = fd;
    EXPECT_NO_THROW(work()) << what;
    EXPECT_EQ(stale, -1) << what << " never met the stale descriptor";
  }
  int code_of(const std::function<void()>& work) {
    stale = fd;
    try {
      work();
    } catch (const IoError& error) {
      return error.code();
    }
    return 0;
  }

  TemporaryFolder folder;
  PosixFileSystem files;
  fs::path path;
  std::unique_ptr<Directory> directory;
  int fd = -1;
};

TEST_F(StaleDirectory, EveryOperationGoesOn) {
  ASSERT_GE(fd, 0);
  expect_goes_on("open", [&] { EXPECT_TRUE(directory->open("a", OpenMode::read)); });
  expect_goes_on("create", [&] { EXPECT_TRUE(directory->open("b", OpenMode::create)); });
  expect_goes_on("mkdir", [&] { EXPECT_TRUE(directory->open_directory("attempts", true)); });
  expect_goes_on("status", [&] { EXPECT_TRUE(directory->status("b")); });
  expect_goes_on("list", [&] { EXPECT_EQ(directory->list().size(), 3u); });
  expect_goes_on("rename_new", [&] { EXPECT_TRUE(directory->rename_new("b", "c")); });
  expect_goes_on("rename_over", [&] { directory->rename_over("c", "d"); });
  expect_goes_on("unlink", [&] { EXPECT_TRUE(directory->unlink("d")); });
  EXPECT_NO_THROW(directory->sync());
}

TEST_F(StaleDirectory, AnotherDirectoryInItsPlaceIsNotTaken) {
  fs::rename(path, folder.path() / "old");
  fs::create_directory(path);
  EXPECT_EQ(code_of([&] { directory->open("b", OpenMode::create); }), ESTALE);
  EXPECT_TRUE(fs::is_empty(path));
  fs::remove(path);
  EXPECT_EQ(code_of([&] { directory->rename_new("a", "b"); }), ESTALE);
}

TEST_F(StaleDirectory, OnceAnOperation) {
  stays_stale = true;
  EXPECT_EQ(code_of([&] { directory->status("a"); }), ESTALE);
}

TEST_F(StaleDirectory, ASyncIsNeverTriedAgain) {
  EXPECT_EQ(code_of([&] { directory->sync(); }), ESTALE);
  stale = -1;
  EXPECT_EQ(code_of([&] { directory->sync(); }), ESTALE) << "what it denied once, it denies for good";
}

}}  // namespace holdfast::test
