// A kernel, or an NFS server, that does not know renameat2(NOREPLACE): a filter on the system call refuses it
// as they do.
#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

bool refuse_renameat2(int code) {
  std::array<sock_filter, 4> program{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

enum Answer { good = 0, no_filter = 10, wrong = 11, threw = 12 };

// Both ways of a rename, in a process of its own.
Answer rename_with(int code, const std::filesystem::path& place) {
  const pid_t child = fork();
  if (child == 0) {
    if (!refuse_renameat2(code)) _exit(no_filter);
    try {
      const auto run = FileSystem::real().open_directory(place, false);
      const bool renamed = run->rename_new("a", "new");
      const bool replaced = run->rename_new("b", "new");
      _exit(renamed && !replaced ? good : wrong);
    } catch (const IoError& error) {
      _exit(error.code() == code ? threw : wrong);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<Answer>(WEXITSTATUS(status));
}

TEST(RenameFallback, LinkAndUnlinkWhereTheKernelKnowsNoBetter) {
  for (const int code : {EINVAL, ENOSYS, EOPNOTSUPP, EPERM}) {
    const TemporaryFolder folder;
    write_text(folder.path() / "a", "first");
    write_text(folder.path() / "b", "second");
    const Answer answer = rename_with(code, folder.path());
    if (answer == no_filter) GTEST_SKIP() << "this machine takes no filter on system calls";
    EXPECT_EQ(answer, good) << code;
    EXPECT_EQ(read_text(folder.path() / "new"), "first");
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "a"));
    EXPECT_EQ(read_text(folder.path() / "b"), "second") << "the loser keeps its name";
  }
}

TEST(RenameFallback, NotForAFailure) {
  const TemporaryFolder folder;
  write_text(folder.path() / "a", "first");
  const Answer answer = rename_with(EIO, folder.path());
  if (answer == no_filter) GTEST_SKIP() << "this machine takes no filter on system calls";
  EXPECT_EQ(answer, threw);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "a"));
}

}}  // namespace holdfast::test
