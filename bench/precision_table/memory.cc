#include "memory.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "format.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// The number behind a key in a file of lines "key 123"; with an empty key, the file's only number. NaN: it is
// not there, or a word ("max").
double number_in(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string name;
  double value = std::numeric_limits<double>::quiet_NaN();
  if (key.empty()) return in >> value ? value : std::numeric_limits<double>::quiet_NaN();
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(key)) continue;
    return std::strtod(line.c_str() + key.size(), nullptr);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// What the group and those above it leave. Pages of files that nobody uses do not count: they give way.
double left_by_group(const fs::path& root, const fs::path& group, const char* limit, const char* usage,
                     const char* idle) {
  double left = kNoLimit;
  for (fs::path at = group.relative_path();; at = at.parent_path()) {
    const fs::path folder = root / at;
    const double most = number_in(folder / limit, "");
    const double taken = number_in(folder / usage, "");
    const double files = number_in(folder / "memory.stat", idle);
    if (std::isfinite(most) && std::isfinite(taken)) {
      left = std::min(left, most - taken + (std::isfinite(files) ? files : 0));
    }
    if (at.empty()) return std::max(left, 0.0);
  }
}

double left_by_groups() {
  double left = kNoLimit;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "0::/path", "4:memory:/path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path group = line.substr(second + 1);
    if (controllers.empty()) {
      left = std::min(
          left, left_by_group("/sys/fs/cgroup", group, "memory.max", "memory.current", "inactive_file "));
    } else if (controllers == "memory") {
      left = std::min(left, left_by_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                          "memory.usage_in_bytes", "total_inactive_file "));
    }
  }
  return left;
}

constexpr double kOfAnOverflow = 1.25;  // what an estimate may have left out

std::string gigabytes(double bytes) { return formatted("%.3g GB", bytes / 1e9); }

std::string need_of(const Demand& demand, std::int64_t batch) {
  return gigabytes(demand.of(batch)) +
         (demand.seen > 0 ? " (estimated from a batch of " + std::to_string(demand.seen) + ")"
                          : " for its weights, gradients and slots alone");
}

std::string advice(std::int64_t batch, std::int64_t full, const char* fits) {
  if (batch == 0) return "no batch fits";
  // Rounded down, so that the batch of that scale is not a larger one.
  const double scale = std::floor(static_cast<double>(batch) / static_cast<double>(full) * 1e4) / 1e4;
  return "a batch of " + std::to_string(batch) + " " + fits +
         (scale > 0 ? formatted(": --scale %.4g", scale) : "");
}

}  // namespace

double free_of_machine() {
  const double available = 1024 * number_in("/proc/meminfo", "MemAvailable:");
  return std::min(std::isfinite(available) ? available : kNoLimit, left_by_groups());
}

std::int64_t Demand::batch_in(double free) const {
  if (!(free > fixed)) return 0;
  const auto batch = static_cast<std::int64_t>((free - fixed) / std::max(per_sample, 1.0));
  return batch >= least ? batch : 0;
}

std::string why_no_room(const Demand& demand, std::int64_t batch, std::int64_t full, double free) {
  if (demand.of(batch) <= free) return "";
  return "it does not fit: it needs about " + need_of(demand, batch) + " and " + gigabytes(free) +
         " are free; " + advice(demand.seen > 0 ? demand.batch_in(free) : 0, full, "fits");
}

std::int64_t batch_after_overflow(const Demand& demand, std::int64_t batch) {
  return demand.seen > 0 ? demand.batch_in(demand.of(batch) / kOfAnOverflow) : 0;
}

std::string why_overflowed(const Demand& demand, std::int64_t batch, std::int64_t full, double free) {
  return "it does not fit: it needs more than the " + gigabytes(free) + " that are free, and at least " +
         need_of(demand, batch) + "; " + advice(batch_after_overflow(demand, batch), full, "should fit");
}

}  // namespace holdfast::bench
