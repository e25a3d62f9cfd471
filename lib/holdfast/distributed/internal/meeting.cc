#include "holdfast/distributed/internal/meeting.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/c10d_store.h"
#include "holdfast/distributed/internal/listening.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/ranks/attendance.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMargin = 5s;    // for connections
constexpr Duration kAgain = 500ms;  // between two checks whether a new rank 0 has come
constexpr const char* kInUse = "the port is in use";
// Open files.
constexpr std::uint64_t kOwn = 512;     // files, libraries, devices
constexpr std::uint64_t kOfStore = 4;   // connections of a rank: calls, signs of life, votes, c10d
constexpr std::uint64_t kOfMeshes = 2;  // groups of Gloo, each with a connection to every rank

Duration left_until(SteadyTime end) { return std::max<Duration>(end - Clock::real().now(), 0s); }

// Raises the soft limit on open files, which is 1,024 where nobody has set it.
void make_room_for_ranks(int rank, int world_size) {
  const auto ranks = static_cast<std::uint64_t>(world_size);
  const std::uint64_t least = (rank == 0 ? kOfStore : 0) * ranks;
  const std::uint64_t wanted = kOwn + least + kOfMeshes * ranks;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  const rlimit raised{.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max), .rlim_max = limit.rlim_max};
  // Raising the soft limit is allowed to every process; the hard limit is the administrator's.
  if (raised.rlim_cur > limit.rlim_cur && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur >= wanted) return;
  const std::string text = std::to_string(world_size) + " ranks need about " + std::to_string(wanted) +
                           " open files in rank " + std::to_string(rank) + ", and the limit is " +
                           std::to_string(limit.rlim_cur) +
                           ": raise it (ulimit -Hn; systemd: LimitNOFILE; Docker: ulimit nofile)";
  if (limit.rlim_cur < least) throw UsageError(text);
  log_warning(text);
}

// Another group of this process may have taken the socket over and closed it. Then the number may be any
// socket's.
bool listens(int socket, std::uint16_t port) {
  int answer = 0;
  socklen_t length = sizeof answer;
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &answer, &length) == 0 && answer != 0 &&
         own_end(socket).second == port;
}

// Ranks of one host meet on its loopback device, whatever MASTER_ADDR resolves to.
std::string host_to_meet_at(const LaunchEnvironment& place) {
  // torchrun's store may be elsewhere, even for ranks of one host.
  if (place.agent_keeps_store || !place.one_host()) return place.master_address;
  const auto found = endpoints_of(place.master_address);
  // An address in 127.0.0.0/8 of the user's choice is respected.
  return !found.empty() && found.front().loopback ? found.front().address : "127.0.0.1";
}

// Rank 0 listens only at the address that the ranks name.
int listen_for(const LaunchEnvironment& place) {
  if (place.listening_socket && listens(*place.listening_socket, place.master_port)) {
    // The launcher has opened the socket before it started the ranks, so no other job can take the port.
    const int flags = fcntl(*place.listening_socket, F_GETFL);
    fcntl(*place.listening_socket, F_SETFL, flags | O_NONBLOCK);
    fcntl(*place.listening_socket, F_SETFD, FD_CLOEXEC);
    return *place.listening_socket;
  }
  const std::string host = host_to_meet_at(place);
  const auto refuse = [&] {
    return std::runtime_error("listening at " + host + ":" + std::to_string(place.master_port) + ": " +
                              (errno == EADDRINUSE ? kInUse : std::strerror(errno)));
  };
  // Debian maps a host's own name to 127.0.1.1, where other hosts cannot connect.
  const bool local = place.one_host() || host == "localhost" || host.starts_with("127.") || host == "::1";
  for (const Endpoint& own : endpoints_of(host)) {
    if (own.loopback && !local) continue;
    const int made = listen_at(own.address, place.master_port);
    if (made >= 0) return made;
    // Not one of this host's addresses, so try the next; any other reason is a refusal.
    if (errno != EADDRNOTAVAIL) throw refuse();
  }
  for (const char* const all : {"::", "0.0.0.0"}) {
    const int made = listen_at(all, place.master_port);
    if (made >= 0) {
      log_warning(
          "MASTER_ADDR={} is no address of an interface of rank 0's host: its store listens on all of them, "
          "and anybody can talk to it. Name an address of that host to narrow it",
          place.master_address);
      return made;
    }
    if (errno == EADDRINUSE) break;
  }
  // errno has the reason of the last address that was tried.
  throw refuse();
}

using Store = c10::intrusive_ptr<c10d::Store>;

// Any call that connects. It may be left behind, so `connect` must own what it uses.
template <class Connect>
Store connected(Duration limit, Connect connect) {
  const auto made = std::make_shared<Store>();
  within(limit + kMargin, [made, connect = std::move(connect)] { *made = connect(); }, {.stop = true});
  return *made;
}

Store make_store(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  if (place.world_size == 1) return c10::make_intrusive<c10d::HashStore>();
  c10d::TCPStoreOptions options;
  options.port = place.master_port;
  options.waitWorkers = false;
  options.timeout = std::chrono::ceil<std::chrono::milliseconds>(limit);
  std::string host = host_to_meet_at(place);
  if (keeps_it) {
    options.isServer = true;
    options.masterListenFd = listen_for(place);
    host = own_end(*options.masterListenFd).first;
    if (host.empty()) host = "127.0.0.1";
  }
  return connected(limit, [host, options, end = Clock::real().now() + limit]() -> Store {
    if (!options.isServer) await_listener(host, options.port, end, stop_signal_came);
    return c10::make_intrusive<c10d::TCPStore>(host, options);
  });
}

Store reach(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  const std::string who = "rank " + std::to_string(place.rank);
  std::string reason;
  try {
    return make_store(place, limit, keeps_it);
  } catch (const SilentStore& silent) {
    reason = silent.what();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  if (keeps_it && reason.ends_with(kInUse)) {
    throw UsageError(
        who + " cannot listen on port " + std::to_string(place.master_port) +
        " of this host: another job has it; set another MASTER_PORT for this one, in all its processes");
  }
  throw GroupError(who + " on " + host_name() + " did not reach rank 0's store at " + port_of(place) +
                   " within " + format_duration(limit) + " (" + reason +
                   "): does rank 0 run, is MASTER_ADDR its host, does a firewall let the port through?");
}

}  // namespace

std::string brief(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : what_of(error);
  return text.substr(0, text.find('\n'));
}

StoreLine meet(const LaunchEnvironment& place, Duration limit) {
  if (place.rank == 0 && place.world_size > 1 && env_text(kEnvJobSecret)) {
    log_warning(
        "HOLDFAST_JOB_SECRET has no effect since 0.2: everyone who reaches the store's port can talk to the "
        "ranks, so keep it in a private network");
  }
  // Before the first connection: a thousand ranks need thousands of descriptors.
  make_room_for_ranks(place.rank, place.world_size);
  const SteadyTime end = Clock::real().now() + limit;
  const bool keeps_it = place.rank == 0 && !place.agent_keeps_store;
  bool too_early = false;
  for (SteadyTime try_until = end;; try_until = Clock::real().now() + limit) {
    StoreLine line(std::make_shared<C10dStore>(reach(place, limit, keeps_it), place.world_size), "holdfast/");
    line.heed_stop(true);
    try {
      // False: this store is that of an earlier start, whose ranks have met already. The next rank 0 makes a
      // new one.
      if (attend(place, try_until, limit, line)) return line;
    } catch (const SilentStore& silent) {
      if (!too_early) {
        throw GroupError("rank 0's store at " + port_of(place) +
                         " went silent while the ranks were meeting (" + silent.what() +
                         "): rank 0 has ended or hangs; its log says why");
      }
    }
    if (left_until(end) <= kAgain) {
      throw GroupError("rank 0 at " + port_of(place) + " is still that of an earlier start after " +
                       format_duration(limit) +
                       ": end it and start all ranks again; if it belongs to another job, give each its own "
                       "MASTER_PORT");
    }
    if (!std::exchange(too_early, true)) {
      log_info("rank 0 at {} is still that of an earlier start: waiting for the next one", port_of(place));
    }
    line.throw_if_told_to_stop();
    Clock::real().sleep_for(kAgain);
  }
}

Store connect_again(const LaunchEnvironment& place, const StoreLine& line, Duration limit) {
  try {
    const auto met = std::dynamic_pointer_cast<C10dStore>(line.store());
    const Store again = connected(limit, [met] { return met->another(); });
    again->setTimeout(std::chrono::ceil<std::chrono::milliseconds>(limit));
    return again;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw GroupError("rank 0's store at " + port_of(place) +
                     " closed or went silent when the ranks had met (" + brief(error) +
                     "): rank 0 has ended or hangs; its log says why");
  }
}

}}  // namespace holdfast::v0_2
