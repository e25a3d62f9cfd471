#include "measured_run.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "../shared/process_times.h"
#include "../shared/seconds.h"
#include "../shared/spawn.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

double peak_megabytes(pid_t pid) {
  std::istringstream lines(text_of("/proc/" + std::to_string(pid) + "/status"));
  for (std::string word; lines >> word;) {
    double kib = 0;
    if (word == "VmHWM:" && lines >> kib) return kib * 1024 / 1e6;
  }
  return 0;
}

}  // namespace

MeasuredRun::MeasuredRun(const std::vector<std::string>& command, std::filesystem::path errors)
    : program_(command[0]), errors_(std::move(errors)), begin_(now()) {
  Redirections to;
  to.open(1, errors_, O_WRONLY | O_CREAT | O_TRUNC);
  to.copy(1, 2);
  pid_ = spawn(command, to);
  if (pid_ < 0) throw IoError("start", program_, errno);
}

MeasuredRun::~MeasuredRun() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Measured MeasuredRun::wait() { return watch(true); }

Measured MeasuredRun::stop() {
  ::kill(pid_, SIGTERM);
  return watch(false);
}

Measured MeasuredRun::watch(bool must_succeed) {
  Measured measured;
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0) {
    measured.peak_megabytes = std::max(measured.peak_megabytes, peak_megabytes(pid_));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  measured.seconds = now() - begin_;
  const double children = times_of(pid_).children;
  int status = 0;
  rusage used{};
  ::wait4(pid_, &status, 0, &used);  // exact, and with the children
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  measured.processor_seconds = std::max(0.0, seconds(used.ru_utime) + seconds(used.ru_stime) - children);
  pid_ = -1;
  if (must_succeed && status != 0) throw Error(program_ + " failed: " + text_of(errors_));
  return measured;
}

}  // namespace holdfast::bench
