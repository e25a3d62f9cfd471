#include "holdfast/cli/started_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/utf8.h"

namespace holdfast::inline v1 {
namespace {

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> environment_of(const StartOptions& options) {
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool taken =
        std::find(options.without.begin(), options.without.end(), name) != options.without.end();
    if (!taken && !options.environment.contains(name)) settings.push_back(text);
  }
  for (const auto& [name, value] : options.environment) settings.push_back(name + "=" + value);
  return settings;
}

// Between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* words, char* const* settings, const StartOptions& options,
                         const SignalInbox& inbox, pid_t wrapper, int report) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != wrapper) _exit(128 + SIGTERM);  // it died before that was arranged
  if (options.no_input || isatty(STDIN_FILENO) != 0) {
    const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  }
  if (options.output >= 0) dup2(options.output, STDOUT_FILENO);
  if (options.error >= 0) dup2(options.error, STDERR_FILENO);
  if (options.inherited >= 0) fcntl(options.inherited, F_SETFD, 0);
  std::signal(SIGPIPE, inbox.ignored_broken_pipes() ? SIG_IGN : SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &inbox.before(), nullptr);
  execvpe(words[0], words, settings);
  const int code = errno;
  [[maybe_unused]] const auto written = write(report, &code, sizeof code);
  _exit(code == ENOENT ? 127 : 126);
}

}  // namespace

StartedProcess start_process(std::vector<std::string> command, const StartOptions& options,
                             const SignalInbox& inbox) {
  std::vector<std::string> settings = environment_of(options);
  const auto words = pointers_to(command);
  const auto variables = pointers_to(settings);
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) throw IoError("pipe", command.front(), errno);
  const pid_t wrapper = getpid();
  StartedProcess started{.id = fork()};
  if (started.id == 0) become(words.data(), variables.data(), options, inbox, wrapper, report[1]);
  const int refused = errno;
  close(report[1]);
  if (started.id < 0) {
    close(report[0]);
    throw IoError("fork", command.front(), refused);
  }
  setpgid(started.id, started.id);  // whichever of the two comes first; it fails once the other has exec'd
  int code = 0;
  ssize_t got = 0;
  do {
    got = read(report[0], &code, sizeof code);
  } while (got < 0 && errno == EINTR);
  close(report[0]);
  if (got == static_cast<ssize_t>(sizeof code)) {
    started.not_started = "cannot execute '" + printable(command.front()) + "': " + std::strerror(code);
  }
  return started;
}

}  // namespace holdfast::inline v1
