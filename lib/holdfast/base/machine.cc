#include "holdfast/base/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>

namespace holdfast::inline v1 {

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

std::string boot_id() {
  static const std::string id = [] {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    return text;
  }();
  return id;
}

std::optional<Duration> process_age() {
  std::string text;
  std::getline(std::ifstream("/proc/self/stat"), text);
  // The second field is a name in parentheses, which may hold anything; the start is the 22nd.
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string field;
  for (int i = 3; i < 22; ++i) fields >> field;
  double ticks = 0;
  timespec now{};
  const long per_second = sysconf(_SC_CLK_TCK);
  if (!(fields >> ticks) || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const double began = ticks / static_cast<double>(per_second);
  const double age = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - began;
  if (age < 0) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(age));
}

}  // namespace holdfast::inline v1
