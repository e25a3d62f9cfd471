#include "holdfast/ranks/attendance.h"

#include <algorithm>
#include <vector>

#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_names.h"

namespace holdfast { inline namespace v1 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMargin = 5s;     // until rank 0's verdict has arrived and was read
constexpr Duration kLook = 2s;       // between two checks for a rank that came twice
constexpr Duration kPatience = 30s;  // between two log lines about missing ranks

Duration left_until(SteadyTime end) { return std::max<Duration>(end - Clock::real().now(), 0s); }

class Attendance {
 public:
  Attendance(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line)
      : place_(place), end_(end), limit_(limit), line_(line) {}

  // Returns false if the ranks have met in this store before and this rank belongs to the next start.
  bool attend() {
    if (place_.rank == 0) line_.set("who", identity());
    const std::string who = line_.get("who", left_until(end_));
    if (who != identity()) refuse_other_job(who);
    // A count, not a flag: add() is atomic, so of two processes with the same rank one sees 2.
    if (line_.add("come/" + std::to_string(place_.rank), 1) > 1) {
      if (line_.missing({"verdict"}, 0s).empty()) return false;
      // Tells rank 0, so that all ranks end with this reason instead of a timeout.
      line_.add("twice", 1);
      throw UsageError(
          "a rank " + std::to_string(place_.rank) + " is at " + port_of(place_) +
          " already: two jobs meet at one port (give each its own MASTER_PORT), or two processes were "
          "started as this rank");
    }
    line_.set("here/" + std::to_string(place_.rank), host_name());
    if (place_.rank == 0) {
      preside();
    } else {
      hear();
    }
    return true;
  }

 private:
  std::string identity() const { return place_.job + " of " + std::to_string(place_.world_size) + " ranks"; }

  [[noreturn]] void refuse_other_job(const std::string& who) const {
    throw UsageError("rank " + std::to_string(place_.rank) + " of job " + identity() + " met job " + who +
                     " at " + port_of(place_) + ": two jobs at one port; give each its own MASTER_PORT");
  }

  void preside() {
    const auto keys = keys_of_ranks("here", place_.world_size);
    SteadyTime said = Clock::real().now();
    std::vector<int> missing;
    for (;;) {
      missing = ranks_of_keys(line_.missing(keys, std::min(kLook, left_until(end_))));
      if (line_.add("twice", 0) > 0) {
        conclude(missing, "two processes came as the same rank to " + port_of(place_) +
                              ": two jobs at one port? Give each its own MASTER_PORT");
      }
      if (missing.empty() || Clock::real().now() >= end_) break;
      if (Clock::real().now() - said < kPatience) continue;
      said = Clock::real().now();
      log_info("waiting at {} for {}", port_of(place_), ranks_in_words(missing));
    }
    if (!missing.empty()) {
      conclude(missing,
               ranks_in_words(missing) + " of " + std::to_string(place_.world_size) + " did not come to " +
                   port_of(place_) + " within " + format_duration(limit_) +
                   ": were they started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and does a "
                   "firewall let them through?");
    }
    line_.set("verdict", "go");
  }

  // Stays until the present ranks have read the verdict: the store ends with this process.
  [[noreturn]] void conclude(const std::vector<int>& missing, const std::string& verdict) {
    line_.set("verdict", verdict);
    std::vector<std::string> readers;
    for (int rank = 1; rank < place_.world_size; ++rank) {
      if (std::find(missing.begin(), missing.end(), rank) == missing.end()) {
        readers.push_back("read/" + std::to_string(rank));
      }
    }
    if (!readers.empty()) line_.missing(readers, kMargin);
    throw GroupError(verdict);
  }

  void hear() {
    // Longer than rank 0 waits, so that its verdict arrives with the names of the missing ranks.
    const std::string verdict = line_.get("verdict", left_until(end_) + kMargin);
    if (verdict == "go") return;
    line_.set("read/" + std::to_string(place_.rank), "");
    throw GroupError(verdict);
  }

  const LaunchEnvironment& place_;
  SteadyTime end_;
  Duration limit_;
  StoreLine& line_;
};

}  // namespace

std::string port_of(const LaunchEnvironment& place) {
  return place.master_address + ":" + std::to_string(place.master_port);
}

bool attend(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line) {
  return Attendance(place, end, limit, line).attend();
}

}}  // namespace holdfast::v1
