#include "counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace holdfast::bench {
namespace {

int open_event(pid_t thread, std::uint64_t config, bool kernel) {
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = config;
  attributes.exclude_user = kernel ? 1 : 0;
  attributes.exclude_kernel = kernel ? 0 : 1;
  attributes.exclude_hv = 1;
  attributes.inherit = 1;  // a save starts threads of its own
  return static_cast<int>(::syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

std::string reason(int code) {
  const std::string text = std::generic_category().message(code);
  if (code == EACCES || code == EPERM) {
    return text + ": lower /proc/sys/kernel/perf_event_paranoid to 1, or run as root";
  }
  return text + ": this machine has no hardware counters, as most virtual machines";
}

double sum(const std::vector<int>& files) {
  double total = 0;
  for (const int file : files) {
    std::uint64_t value = 0;
    if (::read(file, &value, sizeof value) == static_cast<ssize_t>(sizeof value))
      total += static_cast<double>(value);
  }
  return total;
}

}  // namespace

Counters::Counters(const std::set<pid_t>& left_out) {
  constexpr std::uint64_t kConfig[kEvents] = {PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_INSTRUCTIONS,
                                              PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_CPU_CYCLES};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    const pid_t thread = std::stoi(entry.path().filename().string());
    if (left_out.contains(thread)) continue;
    for (std::size_t event = 0; event < kEvents; ++event) {
      const int file = open_event(thread, kConfig[event], event % 2 != 0);
      if (file >= 0) {
        files_[event].push_back(file);
      } else if (errno != ESRCH && why_not_.empty()) {  // a thread may have ended
        why_not_ = reason(errno);
      }
    }
  }
}

Counters::~Counters() {
  for (const auto& files : files_) {
    for (const int file : files) ::close(file);
  }
}

Counts Counters::read() const { return {sum(files_[0]), sum(files_[1]), sum(files_[2]), sum(files_[3])}; }

}  // namespace holdfast::bench
