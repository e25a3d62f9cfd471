#include "holdfast/ranks/attendance.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/ranks/rank_names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMargin = 5s;     // until rank 0's verdict has arrived and was read
constexpr Duration kLook = 2s;       // between two checks for a newer process of this rank
constexpr Duration kPatience = 30s;  // between two log lines about missing ranks
constexpr const char* kGo = "go";    // begins the verdict of a start that goes on

Duration left_until(SteadyTime end) { return std::max<Duration>(end - Clock::real().now(), 0s); }

// The starts in a store that torchrun's agents keep over all of them. Each agent counts restarts for itself,
// and not those for a host that came back; so rank 0 numbers the starts, and lets the newest process of each
// rank in.
class Starts {
 public:
  Starts(const LaunchEnvironment& place, const StoreLine& line) : place_(place), line_(line) {}

  // Returns the keys of this start.
  StoreLine enter(SteadyTime end) {
    // Rank 0 counts, so that all ranks of one start agree on its number.
    number_ = place_.rank == 0 ? std::to_string(line_.add("starts", 1)) : knock(end);
    return line_.below(number_);
  }
  // Rank 0.
  void let_in(const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      const auto ticket = line_.peek(key("knock", rank));
      // A new ticket means that a newer process of this rank knocks.
      if (!ticket || std::exchange(let_in_[rank], *ticket) == *ticket) continue;
      line_.set(key("admit", rank) + "/" + *ticket, number_);
    }
  }
  // A newer rank 0 has come: this one may have ended.
  bool over() { return line_.get("starts", kMargin) != number_; }

 private:
  // Ranks of a start of another size ask elsewhere.
  std::string key(const char* stem, int rank) const {
    return std::string(stem) + "/" + std::to_string(place_.world_size) + "/" + std::to_string(rank);
  }
  std::string knock(SteadyTime end) {
    // A ticket for each process, because an answer for an earlier process must not let a later one in.
    const std::string ticket = std::to_string(line_.add(key("knock", place_.rank), 1));
    return line_.get(key("admit", place_.rank) + "/" + ticket, left_until(end));
  }

  const LaunchEnvironment& place_;
  StoreLine line_;
  std::string number_;
  std::map<int, std::string> let_in_;  // tickets
};

class Attendance {
 public:
  Attendance(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line)
      : place_(place), end_(end), limit_(limit), line_(line) {}

  // Returns false if the ranks have met in this store before and this rank belongs to the next start.
  bool attend() {
    if (place_.agent_keeps_store) {
      // All starts share one store there, so each needs keys of its own.
      starts_.emplace(place_, line_);
      line_ = starts_->enter(end_);
    }
    if (place_.rank == 0) line_.set("who", identity());
    const std::string who = line_.get("who", left_until(end_));
    // Compared before anything is counted: another job must leave no trace here.
    if (who != identity()) refuse_other_job(who);
    came_ = line_.add(own_count(), 1);
    // The ranks have met without this process.
    if (came_ > 1 && line_.peek("verdict")) return false;
    line_.bring("here", place_.rank, place_.world_size, std::to_string(came_));
    if (place_.rank != 0) return hear();
    preside();
    return true;
  }

 private:
  std::string identity() const { return place_.job + " of " + std::to_string(place_.world_size) + " ranks"; }

  std::string own_count() const { return "come/" + std::to_string(place_.rank); }

  // A process that died while the ranks were meeting may be started again. This one lives, so a newer one
  // means that there are two.
  void refuse_if_twice() {
    if (line_.peek(own_count()) == std::to_string(came_)) return;
    // Tells rank 0, so that all ranks end with this reason instead of a timeout.
    line_.add("twice", 1);
    refuse_second();
  }
  [[noreturn]] void refuse_second() const {
    throw UsageError("a rank " + std::to_string(place_.rank) + " is at " + port_of(place_) +
                     " already: two jobs meet at one port (give each its own MASTER_PORT), or two processes "
                     "were started as this rank");
  }

  [[noreturn]] void refuse_other_job(const std::string& who) const {
    throw UsageError("rank " + std::to_string(place_.rank) + " of job " + identity() + " met job " + who +
                     " at " + port_of(place_) + ": two jobs at one port; give each its own MASTER_PORT");
  }

  void preside() {
    SteadyTime said = Clock::real().now();
    // More ranks ask less often.
    const Duration look = longest_pause(static_cast<std::size_t>(place_.world_size));
    std::vector<int> missing;
    for (int rank = 1; rank < place_.world_size; ++rank) missing.push_back(rank);
    for (;;) {
      if (starts_) starts_->let_in(missing);
      missing = line_.absent("here", missing, std::min(look, left_until(end_)));
      if (line_.peek("twice")) {
        conclude(missing, "two processes came as the same rank to " + port_of(place_) +
                              ": two jobs at one port? Give each its own MASTER_PORT");
      }
      if (missing.empty() || Clock::real().now() >= end_) break;
      if (Clock::real().now() - said < kPatience) continue;
      said = Clock::real().now();
      // Rarely: a start of many machines may take minutes, and one line each half a minute is enough.
      log_info("waiting at {} for {}", port_of(place_), ranks_in_words(missing));
    }
    if (!missing.empty()) {
      conclude(missing,
               ranks_in_words(missing) + " of " + std::to_string(place_.world_size) + " did not come to " +
                   port_of(place_) + " within " + format_duration(limit_) +
                   ": were they started, with the same WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and does a "
                   "firewall let them through?");
    }
    // The newest process of each rank is meant; an older one that lives ends.
    std::string verdict = kGo;
    for (const auto& [rank, came] : line_.came("here")) {
      if (came != "1") verdict += " " + std::to_string(rank) + ":" + came;
    }
    line_.set("verdict", verdict);
  }

  // Stays until the present ranks have read the verdict: the store ends with this process.
  [[noreturn]] void conclude(const std::vector<int>& missing, const std::string& verdict) {
    line_.set("verdict", verdict);
    std::vector<int> readers;
    for (int rank = 1; rank < place_.world_size; ++rank) {
      if (std::find(missing.begin(), missing.end(), rank) == missing.end()) readers.push_back(rank);
    }
    if (!readers.empty()) line_.absent("read", readers, kMargin);
    throw GroupError(verdict);
  }

  // False: another start has begun.
  bool hear() {
    // Longer than rank 0 waits, so that its verdict arrives with the names of the missing ranks.
    // Rank 0 waits until `end_` and then still has to write its verdict.
    const SteadyTime end = std::max(end_, Clock::real().now()) + kMargin;
    std::optional<std::string> verdict;
    while (!(verdict = line_.wait("verdict", std::min(kLook, left_until(end))))) {
      if (starts_ && starts_->over()) return false;
      refuse_if_twice();
      if (Clock::real().now() >= end) throw SilentStore("no answer");
    }
    if (!verdict->starts_with(kGo)) {
      // Rank 0 stays until this is read, so that its store lives as long.
      try {
        line_.bring("read", place_.rank, place_.world_size);
      } catch (const SilentStore&) {  // rank 0 has seen the text, and ended before it answered
      }
      throw GroupError(*verdict);
    }
    const std::string own = " " + std::to_string(place_.rank) + ":";
    const auto named = verdict->find(own);
    const std::int64_t meant =
        named == std::string::npos ? 1 : std::stoll(verdict->substr(named + own.size()));
    if (meant == came_) return true;
    // They have met with the process before this one.
    if (meant < came_) return false;
    refuse_second();
  }

  const LaunchEnvironment& place_;
  SteadyTime end_;
  Duration limit_;
  StoreLine& line_;
  std::optional<Starts> starts_;  // if torchrun's agents keep the store
  std::int64_t came_ = 0;         // this process's number among those of its rank
};

}  // namespace

std::string port_of(const LaunchEnvironment& place) {
  return place.master_address + ":" + std::to_string(place.master_port);
}

bool attend(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line) {
  return Attendance(place, end, limit, line).attend();
}

}}  // namespace holdfast::v0_2
