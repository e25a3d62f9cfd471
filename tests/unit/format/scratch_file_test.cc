#include "holdfast/format/internal/hdf5/scratch_file.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <stdexcept>
#include <string>

#include "holdfast/base/error.h"
#include "holdfast/format/file_plan.h"

namespace holdfast::test { namespace {

using internal::ScratchFile;

TEST(ScratchFile, IsEmptyAndLeavesNothing) {
  std::string path;
  {
    const ScratchFile file(1 << 20);
    path = file.path();
    EXPECT_EQ(file.size(), 0U);
    EXPECT_EQ(access(path.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ScratchFile, WhereThereIsNoRoomIsAnIoError) {
  EXPECT_THROW(ScratchFile(std::uint64_t{1} << 60), IoError);
}

// In a process with a view of the mounts that is its own, with a tiny /dev/shm; its status says how it went.
constexpr int kNoMount = 3;
template <class F>
int with_tiny_shared_memory(F&& action) {
  const pid_t child = fork();
  if (child == 0) {
    const bool mounted = unshare(CLONE_NEWNS) == 0 &&
                         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64k") == 0;
    int status = kNoMount;
    try {
      if (mounted) status = action() ? 0 : 1;
    } catch (const std::exception&) {
      status = 2;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ScratchFile, AFullDevShmIsNoEnd) {
  const int status = with_tiny_shared_memory([] {
    const ScratchFile file(1 << 20);
    const bool elsewhere = !file.path().starts_with("/dev/shm/");
    const auto plan = make_file_plan({{"model/weight", DType::float32, {1000}}}, 256 << 10);
    return elsewhere && plan->layout->length() > 4000;
  });
  if (status == kNoMount) GTEST_SKIP() << "only root may mount a small /dev/shm";
  EXPECT_EQ(status, 0);
}

// While it lives, this process can open `more` files and no others.
class NoMoreFiles {
 public:
  explicit NoMoreFiles(int more = 0) {
    const int next = dup(STDERR_FILENO);  // the lowest number that is free
    if (next < 0 || close(next) != 0 || getrlimit(RLIMIT_NOFILE, &before_) != 0) fail();
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next + more);
    if (setrlimit(RLIMIT_NOFILE, &few) != 0) fail();
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  static void fail() { throw std::runtime_error("the limit of open files cannot be set"); }
  rlimit before_{};
};

// A program that has opened too many files: its state is no reason to give the run up.
TEST(ScratchFile, ASystemCallThatFailsInLibhdf5IsAnIoError) {
  const auto plan = [] { make_file_plan({{"model/weight", DType::float32, {1000}}}, 256 << 10); };
  plan();  // what libhdf5 opens once is open
  int code = 0;
  try {
    const NoMoreFiles limit(1);  // but the scratch file's own descriptor
    plan();
  } catch (const IoError& error) {
    code = error.code();
  } catch (const RefusedError& error) {
    ADD_FAILURE() << error.what();
  }
  EXPECT_EQ(code, EMFILE);
}

}}  // namespace holdfast::test
