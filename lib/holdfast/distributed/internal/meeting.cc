#include "holdfast/distributed/internal/meeting.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/c10d_compat.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast::inline v1 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMargin = 5s;     // for rank 0's verdict to arrive, and to be read
constexpr Duration kLook = 2s;       // between two looks at who is there
constexpr Duration kPatience = 30s;  // between two lines that say who is not

Duration left_until(SteadyTime end) { return std::max<Duration>(end - Clock::real().now(), 0s); }

std::string port_of(const LaunchEnvironment& place) {
  return place.master_address + ":" + std::to_string(place.master_port);
}

// Another group of this process may have taken it over and closed it: its number can be any socket's by now.
bool listens(int socket, std::uint16_t port) {
  int answer = 0;
  socklen_t length = sizeof answer;
  if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &answer, &length) != 0 || answer == 0) return false;
  sockaddr_storage own{};
  length = sizeof own;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return false;
  if (own.ss_family == AF_INET) return reinterpret_cast<const sockaddr_in&>(own).sin_port == htons(port);
  return own.ss_family == AF_INET6 && reinterpret_cast<const sockaddr_in6&>(own).sin6_port == htons(port);
}

c10::intrusive_ptr<c10d::Store> make_store(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  if (place.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = place.master_port;
  options.isServer = keeps_it;
  options.numWorkers = static_cast<std::size_t>(place.world_size);
  options.waitWorkers = false;  // it would not say who is missing
  options.timeout = std::chrono::ceil<std::chrono::milliseconds>(limit);
  if (options.isServer && place.listening_socket && listens(*place.listening_socket, place.master_port)) {
    compat::take_over_socket(options, *place.listening_socket);
  }
  // Not by reference: this may be left behind.
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::Store>>();
  within(limit + kMargin, [made, host = place.master_address, options] {
    *made = c10::make_intrusive<c10d::TCPStore>(host, options);
  });
  return *made;
}

c10::intrusive_ptr<c10d::Store> reach(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  const std::string who = "rank " + std::to_string(place.rank);
  std::string reason;
  try {
    return make_store(place, limit, keeps_it);
  } catch (const SilentStore& silent) {
    reason = silent.what();
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  if (reason.find("EADDRINUSE") != std::string::npos || reason.find("in use") != std::string::npos) {
    throw UsageError(
        who + " cannot listen on port " + std::to_string(place.master_port) +
        " of this host: another job has it; set another MASTER_PORT for this one, in all its processes");
  }
  throw GroupError(who + " on " + host_name() + " did not reach rank 0's store at " + port_of(place) +
                   " within " + format_duration(limit) + " (" + reason +
                   "): does rank 0 run, is MASTER_ADDR its host, does a firewall let the port through?");
}

class Meeting {
 public:
  Meeting(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line)
      : place_(place), end_(end), limit_(limit), line_(line) {}

  void attend() {
    if (place_.rank == 0) line_.set("who", identity());
    const std::string who = line_.get("who", left_until(end_));
    if (who != identity()) refuse_other_job(who);
    if (line_.add("come/" + std::to_string(place_.rank), 1) > 1) {
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

  // Stays until those who are there have read it: the store ends with this process.
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

std::string ranks_in_words(std::span<const int> ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = std::min(ranks.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > shown) text += " and " + std::to_string(ranks.size() - shown) + " more";
  return text;
}

std::vector<std::string> keys_of_ranks(const std::string& stem, int world_size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < world_size; ++rank) keys.push_back(stem + "/" + std::to_string(rank));
  return keys;
}

std::vector<int> ranks_of_keys(std::span<const std::string> keys) {
  std::vector<int> ranks;
  for (const std::string& key : keys) ranks.push_back(std::stoi(key.substr(key.rfind('/') + 1)));
  return ranks;
}

std::string brief(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : what_of(error);
  return text.substr(0, text.find('\n'));
}

StoreLine meet(const LaunchEnvironment& place, Duration limit) {
  const SteadyTime end = Clock::real().now() + limit;
  const bool keeps_it = place.rank == 0 && !place.agent_keeps_store;
  StoreLine line(reach(place, limit, keeps_it), "holdfast/" + std::to_string(place.restart) + "/");
  try {
    Meeting(place, end, limit, line).attend();
  } catch (const SilentStore& silent) {
    throw GroupError("rank 0's store at " + port_of(place) + " went silent while the ranks were meeting (" +
                     silent.what() + "): rank 0 has ended or hangs; its log says why");
  }
  return line;
}

c10::intrusive_ptr<c10d::Store> connect_again(const LaunchEnvironment& place, Duration limit) {
  return reach(place, limit, false);
}

}  // namespace holdfast::inline v1
