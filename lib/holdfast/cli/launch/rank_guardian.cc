#include "holdfast/cli/launch/rank_guardian.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/process/process_identity.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kBetweenLooksAtRanks = 100ms;

// A process number may be reused, but the new process starts later.
struct Rank {
  pid_t id;
  std::uint64_t started;  // 0: it had ended before guard() was called
};

bool lives(const Rank& rank) { return rank.started != 0 && start_of_process(rank.id) == rank.started; }

[[noreturn]] void watch(int told, Duration grace) {
  // A session of its own, no signals, and no descriptor of the launcher: an open one would keep a pipe from
  // ending.
  setsid();
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  dup2(told, STDIN_FILENO);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  close_range(3, ~0U, 0);
  std::vector<Rank> ranks;
  pid_t rank = -1;
  // read() returns 0 when the launcher's end of the pipe closes, however the launcher dies.
  for (ssize_t got = 0; (got = read(STDIN_FILENO, &rank, sizeof rank)) != 0;) {
    if (got < 0 && errno != EINTR) break;
    if (got == static_cast<ssize_t>(sizeof rank)) ranks.push_back({rank, start_of_process(rank)});
  }
  const auto any_lives = [&] { return std::any_of(ranks.begin(), ranks.end(), lives); };
  for (const SteadyTime end = Clock::real().now() + grace; any_lives() && Clock::real().now() < end;) {
    Clock::real().sleep_for(kBetweenLooksAtRanks);
  }
  // The whole group, so that processes which a rank has started end with it.
  for (const Rank& one : ranks) {
    if (lives(one)) kill(-one.id, SIGKILL);
  }
  _exit(0);
}

}  // namespace

RankGuardian::RankGuardian(Duration grace) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw IoError("pipe", "", errno);
  id_ = fork();
  // Kept now, because the calls below may change it.
  const int refused = errno;
  if (id_ == 0) {
    close(ends[1]);
    watch(ends[0], grace);
  }
  close(ends[0]);
  told_ = ends[1];
  if (id_ < 0) {
    close(told_);
    throw IoError("fork", "", refused);
  }
}

void RankGuardian::reaped(pid_t who) {
  if (who <= 0 || who != id_) return;  // waitpid() says -1 when no child is left
  id_ = -1;
  log_warning(
      "the process that would end hanging ranks after the launcher's death has been killed; the ranks train "
      "on");
}

RankGuardian::~RankGuardian() {
  if (id_ > 0) {
    // Killed before the pipe closes: the end of the pipe would tell it that the launcher has died.
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  close(told_);
}

}}  // namespace holdfast::v0_2
