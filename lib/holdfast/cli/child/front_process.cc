#include "holdfast/cli/child/front_process.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "holdfast/base/error.h"
#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr timespec kAgain{.tv_sec = 1, .tv_nsec = 0};

int pass_on_until_the_end(pid_t child, const sigset_t& heard, const std::function<bool(pid_t)>& reaped) {
  for (bool settled = true;;) {
    int status = 0;
    // First, because a child may have ended before the signals were blocked.
    for (pid_t who = 0; (who = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (who == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (reaped) settled = reaped(who);
    }
    if (!settled) settled = reaped(0);
    const int signal = settled ? sigwaitinfo(&heard, nullptr) : sigtimedwait(&heard, nullptr, &kAgain);
    if (signal > 0 && signal != SIGCHLD) kill(child, signal);
  }
}

}  // namespace

int run_apart(const std::function<int()>& work, const std::function<bool(pid_t)>& reaped) {
  const pid_t front = getpid();
  // Without inherited children nothing can be mistaken for the command's, so no second process is needed.
  if (front != 1 && children_of(front).empty()) return work();
  sigset_t heard;
  sigset_t before;
  // All of them: what a signal means is decided in the process behind this one.
  sigfillset(&heard);
  // Job control signals keep their effect: Ctrl-Z must stop the terminal's foreground job.
  for (const int job_control : {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT}) sigdelset(&heard, job_control);
  // It comes from this process's own log, whose reader has ended, and is no message for the child.
  sigdelset(&heard, SIGPIPE);
  std::signal(SIGCHLD, SIG_DFL);  // if it were ignored, the kernel would reap the child and drop its ending
  pthread_sigmask(SIG_BLOCK, &heard, &before);
  const pid_t child = fork();
  // Kept before another call can change it.
  const int refused = errno;
  if (child > 0) return pass_on_until_the_end(child, heard, reaped);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) throw IoError("fork", "", refused);
  setpgid(0, 0);  // so that a Ctrl-C reaches only the front process, which forwards it once
  // Without the front process nobody would pass signals on.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != front) _exit(128 + SIGKILL);  // the front process died before prctl()
  return work();
}

}}  // namespace holdfast::v0_2
