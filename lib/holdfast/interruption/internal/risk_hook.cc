#include "holdfast/interruption/internal/risk_hook.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/stderr_writer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The calling thread may block signals; the command must not inherit that.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    // Handlers of this program do not exist in the command, and ignored signals would stay ignored there.
    posix_spawnattr_setsigdefault(&attributes, &all);
    // A group of its own, so that the terminal's Ctrl-C does not reach the command.
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    // The reader of the training's log may have ended, and a command that prints would end with SIGPIPE.
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      if (!has_reader(stream)) posix_spawn_file_actions_addopen(&files, stream, "/dev/null", O_WRONLY, 0);
    }
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawnattr_t attributes{};
  posix_spawn_file_actions_t files{};
};

}  // namespace

void RiskHook::start(const RiskCommand& command) noexcept {
  try {
    // Reserved before the start: afterwards nothing may throw, or the child would never be reaped.
    running_.reserve(running_.size() + 1);
    const SpawnSettings settings;
    std::string text = command.text;
    char shell[] = "sh";
    char option[] = "-c";
    char* const arguments[] = {shell, option, text.data(), nullptr};
    // The command may start a training of its own, which must not take this supervisor for its own.
    std::vector<std::string> variables =
        environment_for_child(to_environment(command.context),
                              {kEnvSupervisor.name, kEnvSupervisedSince.name, kEnvSupervisedUptime.name});
    std::vector<char*> environment;
    environment.reserve(variables.size() + 1);
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    pid_t child = 0;
    const int code =
        posix_spawn(&child, "/bin/sh", &settings.files, &settings.attributes, arguments, environment.data());
    if (code != 0) {
      log_warning("the command for a machine at risk could not be started: {}", std::strerror(code));
      return;
    }
    running_.push_back(child);
  } catch (const std::bad_alloc&) {
    log_warning("the command for a machine at risk could not be started: out of memory");
  }
}

bool RiskHook::reap() noexcept {
  std::erase_if(running_, [](pid_t child) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
    if (ended == child && WIFEXITED(status) && WEXITSTATUS(status) != 0) {
      log_warning("the command for a machine at risk ended with code {}", WEXITSTATUS(status));
    } else if (ended == child && WIFSIGNALED(status)) {
      log_warning("the command for a machine at risk was ended by signal {}", WTERMSIG(status));
    }
    return true;  // also if the program reaps its children itself (ECHILD)
  });
  return !running_.empty();
}

}}}  // namespace holdfast::v0_2::internal
