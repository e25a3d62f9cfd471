// The mirror beside a supervised training, where the machine allows it no process for a moment.
#include "holdfast/cli/mirror/mirror_process.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "holdfast/cli/child/attended_child.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr int kNoSuchUser = 65534;
enum End { kStartedAgain = 0, kNeverAgain, kAtOnce, kThrew, kNotPossibleHere };

// In a process of its own, which becomes another user's: root may make as many processes as it likes.
End mirror_is_killed_where_no_process_is_allowed(const std::filesystem::path& folder) try {
  if (geteuid() == 0 && (setgid(kNoSuchUser) != 0 || setuid(kNoSuchUser) != 0)) return kNotPossibleHere;
  prctl(PR_SET_DUMPABLE, 1UL, 0UL, 0UL, 0UL);  // or /proc does not tell it its children
  MirrorProcess mirror({.directory = folder / "run", .home = (folder / "home").native()});
  const auto children = children_of(getpid());
  if (children.size() != 1) return kNotPossibleHere;
  rlimit allowed{};
  getrlimit(RLIMIT_NPROC, &allowed);
  const rlimit none{.rlim_cur = 0, .rlim_max = allowed.rlim_max};
  setrlimit(RLIMIT_NPROC, &none);
  if (const pid_t one = fork(); one >= 0) {  // such as in a sandbox that knows no such limit
    if (one == 0) _exit(0);
    return kNotPossibleHere;
  }
  kill(children.front(), SIGKILL);
  waitpid(children.front(), nullptr, 0);
  if (mirror.lives_after(children.front())) return kAtOnce;
  const auto lives_within = [&](Duration limit) {
    for (const SteadyTime end = Clock::real().now() + limit; Clock::real().now() < end;) {
      if (mirror.lives_after(0)) return true;
      Clock::real().sleep_for(10ms);
    }
    return false;
  };
  if (lives_within(1500ms)) return kAtOnce;
  setrlimit(RLIMIT_NPROC, &allowed);
  return lives_within(60s) ? kStartedAgain : kNeverAgain;
} catch (const std::exception&) {
  return kThrew;
}

TEST(MirrorProcess, IsStartedAgainWhenTheMachineAllowsIt) {
  const TemporaryFolder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const pid_t child = fork();
  if (child == 0) _exit(mirror_is_killed_where_no_process_is_allowed(folder.path()));
  ASSERT_GT(child, 0);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNotPossibleHere) GTEST_SKIP() << "no other user can be taken here";
  EXPECT_EQ(WEXITSTATUS(status), kStartedAgain);
}

}}  // namespace holdfast::test
