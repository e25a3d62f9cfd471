#include "holdfast/base/system/machine.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>

#include "holdfast/base/process/process_identity.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// `exec` keeps the process's age and the resource use of its children. No call tells when exec happened.
struct Load {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  bool after_children = [] {
    // Any child that was waited for has touched memory, so page faults tell whether there was one before the
    // exec.
    rusage children{};
    return getrusage(RUSAGE_CHILDREN, &children) == 0 && children.ru_minflt > 0;
  }();
};
const Load kLoad;  // initialised before main(), so its time is the load of this library

}  // namespace

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

std::string boot_id() {
  // Read once: the kernel sets it at boot.
  static const std::string id = [] {
    std::string text;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), text);
    return text;
  }();
  return id;
}

std::optional<Duration> process_age() {
  const std::uint64_t ticks = start_of_process("self");
  // Start times in /proc count from boot and include sleep, like CLOCK_BOOTTIME.
  timespec now{};
  const long per_second = sysconf(_SC_CLK_TCK);
  if (ticks == 0 || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const double began = static_cast<double>(ticks) / static_cast<double>(per_second);
  const double age = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 - began;
  // A container may restore or fake /proc; a negative age is no age.
  if (age < 0) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(age));
}

std::optional<Duration> program_age() {
  const std::optional<Duration> age = process_age();
  if (!age || !kLoad.after_children) return age;
  return std::min<Duration>(*age, std::chrono::steady_clock::now() - kLoad.time);
}

}}  // namespace holdfast::v0_2
