#include "batches.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace holdfast::test::memory {
namespace {

constexpr unsigned kHang = 60;  // seconds a point may take
constexpr std::size_t kShown = 6;

struct Shared {
  std::uint64_t current = 0;
  std::uint64_t done = 0;  // points
  Point points[512];
};
constexpr int kMost = 512;

Shared& shared_page() {
  static void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return *static_cast<Shared*>(memory);
}

[[noreturn]] void work(Series& series, Shared& shared, int log, std::uint64_t from, std::uint64_t last,
                       std::uint64_t stride, int count) {
  dup2(log, STDERR_FILENO);
  const rlimit no_core{};
  setrlimit(RLIMIT_CORE, &no_core);
  int code = 0;
  try {
    alarm(kHang);
    series.begin();
    for (std::uint64_t nth = from; nth <= last && shared.done < static_cast<std::uint64_t>(count);
         nth += stride) {
      alarm(kHang);
      if (ftruncate(log, 0) != 0) break;
      shared.current = nth;
      Point& point = shared.points[shared.done];
      // A history differs a little from time to time, in its last requests.
      for (int tries = 0; tries < 5 && !point.fired && point.problem[0] == '\0'; ++tries)
        series.run(nth, point);
      ++shared.done;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "the test itself: %s\n", error.what());
    code = 1;
  }
  _exit(code);
}

std::string tail_of(int log) {
  char text[400] = {};
  const off_t size = lseek(log, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(sizeof text - 1));
  if (pread(log, text, sizeof text - 1, from) < 0) return {};
  return text;
}

}  // namespace

void Point::complain(const std::string& what, bool loss) {
  lost = lost || loss;
  if (problem[0] == '\0') std::snprintf(problem, sizeof problem, "%s", what.c_str());
}

Report& Report::operator+=(const Report& other) {
  planned += other.planned;
  fired += other.fired;
  elsewhere += other.elsewhere;
  lost += other.lost;
  crashes += other.crashes;
  problems += other.problems;
  shown.insert(shown.end(), other.shown.begin(), other.shown.end());
  return *this;
}

Report run_points(const std::string& name, const std::function<std::unique_ptr<Series>()>& make,
                  std::uint64_t last, std::uint64_t stride, int per_child) {
  Report report;
  Shared& shared = shared_page();
  const int log = memfd_create("log", MFD_CLOEXEC);
  fcntl(log, F_SETFL, O_APPEND);
  const auto show = [&](std::uint64_t nth, const std::string& what) {
    if (report.shown.size() < kShown)
      report.shown.push_back(name + ", request " + std::to_string(nth) + ": " + what);
  };
  std::uint64_t nth = 1;
  while (nth <= last) {
    shared = {};
    std::fflush(nullptr);
    const auto series = make();
    const pid_t child = fork();
    if (child == 0) work(*series, shared, log, nth, last, stride, std::min(per_child, kMost));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    for (std::uint64_t i = 0; i < shared.done; ++i, nth += stride) {
      const Point& point = shared.points[i];
      ++report.planned;
      report.fired += point.fired ? 1 : 0;
      report.elsewhere += point.elsewhere ? 1 : 0;
      report.lost += point.lost ? 1 : 0;
      report.problems += point.problem[0] != '\0' && !point.lost ? 1 : 0;
      if (point.problem[0] != '\0') show(nth, point.problem);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    ++report.planned;
    ++report.fired;
    ++report.crashes;
    const std::string how = WIFEXITED(status) ? "ended with " + std::to_string(WEXITSTATUS(status))
                            : WTERMSIG(status) == SIGALRM
                                ? "hung"
                                : std::string("crashed: ") + strsignal(WTERMSIG(status));
    show(nth, how + "; " + tail_of(log));
    nth += stride;
  }
  close(log);
  return report;
}

}  // namespace holdfast::test::memory
