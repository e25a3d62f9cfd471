#include "holdfast/metrics/system_sampler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <locale>
#include <string>

#include "holdfast/base/seconds.h"

namespace holdfast { inline namespace v0_2 {
namespace {

Duration time_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

Duration cpu_time() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return {};
  return time_of(usage.ru_utime) + time_of(usage.ru_stime);
}

std::uint64_t resident_bytes() {
  std::uint64_t pages = 0;
  std::ifstream file("/proc/self/statm");
  // A locale of the program may group digits by spaces, and two numbers would then be one.
  file.imbue(std::locale::classic());
  file >> pages >> pages;  // the second number
  return file ? pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

void read_disk_bytes(SystemEvent& event) {
  std::ifstream file("/proc/self/io");
  file.imbue(std::locale::classic());
  std::string name;
  // Sandboxes may hide this file; the figures then stay 0.
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "read_bytes:") event.read_bytes = value;
    if (name == "write_bytes:") event.written_bytes = value;
  }
}

double rate(std::uint64_t now, std::uint64_t before, double elapsed) {
  // Unsigned: the difference of a counter that fell would be huge.
  return now > before ? static_cast<double>(now - before) / elapsed : 0;
}

}  // namespace

SystemEvent SystemSampler::sample() {
  // On the first sample and not in the constructor: loading the library belongs on the metrics thread.
  if (!nvml_) nvml_.emplace();
  SystemEvent event{.cpu_time = cpu_time(), .resident_bytes = resident_bytes(), .at = clock_.wall_now()};
  read_disk_bytes(event);
  event.gpus = nvml_->read();
  const SteadyTime now = clock_.now();
  if (const double elapsed = last_ ? in_seconds(now - *last_) : 0; elapsed > 0) {
    event.cpu_cores = in_seconds(event.cpu_time - before_.cpu_time) / elapsed;
    event.read_bytes_per_s = rate(event.read_bytes, before_.read_bytes, elapsed);
    event.written_bytes_per_s = rate(event.written_bytes, before_.written_bytes, elapsed);
  }
  last_ = now;
  before_ = event;
  return event;
}

}}  // namespace holdfast::v0_2
