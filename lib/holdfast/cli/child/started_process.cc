#include "holdfast/cli/child/started_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/system/stderr_writer.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kUntilItRunsMs = 1000;

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Runs between fork and exec, so it makes only async-signal-safe calls.
[[noreturn]] void become(char* const* words, char* const* settings, const ProcessOptions& options,
                         const SignalInbox& inbox, pid_t wrapper, pid_t tracer, int report) {
  setpgid(0, 0);
  // A wrapper that is killed can pass nothing on, and its command would train on without one.
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != wrapper) _exit(128 + SIGTERM);  // the wrapper died before prctl()
  // Where Yama restricts ptrace(2), the tools that read stacks descend from the wrapper, and not from the
  // command. This survives exec, for the command itself and not for its children.
  if (prctl(PR_SET_PTRACER, tracer) != 0) prctl(PR_SET_PTRACER, wrapper);
  if (options.announced_to >= 0) {
    const pid_t own = getpid();
    [[maybe_unused]] const auto written = write(options.announced_to, &own, sizeof own);
  }
  if (options.no_input || isatty(STDIN_FILENO) != 0) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  }
  if (options.output >= 0) dup2(options.output, STDOUT_FILENO);
  if (options.error >= 0) dup2(options.error, STDERR_FILENO);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (has_reader(stream)) continue;
    const int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, stream);
  }
  // The one descriptor that stays open across exec.
  if (options.inherited >= 0) fcntl(options.inherited, F_SETFD, 0);
  // exec keeps an ignored signal ignored, so the command gets what this program had at its start.
  std::signal(SIGPIPE, inbox.ignored_broken_pipes() ? SIG_IGN : SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &inbox.before(), nullptr);
  // The report pipe is O_CLOEXEC: a successful exec closes it, which tells the wrapper that the command runs.
  execvpe(words[0], words, settings);
  const int code = errno;
  [[maybe_unused]] const auto written = write(report, &code, sizeof code);
  // The codes of a shell.
  _exit(code == ENOENT ? 127 : 126);
}

// The outermost wrapper that may read stacks: below `supervise`, a launcher's ranks are read by both.
pid_t tracer_above(pid_t wrapper) {
  const auto supervisor = env_text(kEnvSupervisor);
  if (!supervisor) return wrapper;
  const auto process = parse_int(supervisor->substr(0, supervisor->find('.')));  // see predecessor.h
  return process && *process > 0 ? static_cast<pid_t>(*process) : wrapper;
}

}  // namespace

StartedProcess start_process(std::vector<std::string> command, const ProcessOptions& options,
                             const SignalInbox& inbox) {
  // Before fork(): in the child of a program with threads nothing may be allocated.
  std::vector<std::string> settings = environment_for_child(options.environment, options.without);
  const auto words = pointers_to(command);
  const auto variables = pointers_to(settings);
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) throw IoError("pipe", command.front(), errno);
  const pid_t wrapper = getpid();
  const pid_t tracer = tracer_above(wrapper);
  StartedProcess started{.id = fork(), .report = report[0], .command = command.front()};
  if (started.id == 0) become(words.data(), variables.data(), options, inbox, wrapper, tracer, report[1]);
  // Kept now, because the calls below may change it.
  const int refused = errno;
  close(report[1]);
  if (started.id < 0) {
    close(report[0]);
    throw IoError("fork", command.front(), refused);
  }
  setpgid(started.id, started.id);  // in parent and child, because either may run first; fails after exec
  pollfd until_it_runs{.fd = started.report, .events = POLLIN, .revents = 0};
  poll(&until_it_runs, 1, kUntilItRunsMs);
  return started;
}

std::string why_not_started(const StartedProcess& ended) {
  int code = 0;
  ssize_t got = 0;
  do {
    got = read(ended.report, &code, sizeof code);
  } while (got < 0 && errno == EINTR);
  close(ended.report);
  if (got != static_cast<ssize_t>(sizeof code)) return {};
  return "cannot execute '" + printable(ended.command) + "': " + std::strerror(code);
}

}}  // namespace holdfast::v0_2
