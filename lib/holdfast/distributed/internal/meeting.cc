#include "holdfast/distributed/internal/meeting.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/foreign_store.h"
#include "holdfast/distributed/internal/store_client.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/ranks/attendance.h"
#include "holdfast/ranks/descriptors.h"
#include "holdfast/ranks/keyed_hash.h"
#include "holdfast/ranks/sockets.h"
#include "holdfast/ranks/store_server.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMargin = 5s;    // for connections
constexpr Duration kAgain = 500ms;  // between two checks whether a new rank 0 has come
constexpr const char* kInUse = "the port is in use";

Duration left_until(SteadyTime end) { return std::max<Duration>(end - Clock::real().now(), 0s); }

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
Socket listen_for(const LaunchEnvironment& place) {
  if (place.listening_socket && listens(*place.listening_socket, place.master_port)) {
    // The launcher has opened the socket before it started the ranks, so no other job can take the port.
    const int flags = fcntl(*place.listening_socket, F_GETFL);
    fcntl(*place.listening_socket, F_SETFL, flags | O_NONBLOCK);
    fcntl(*place.listening_socket, F_SETFD, FD_CLOEXEC);
    return Socket(*place.listening_socket);
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
    if (auto made = listen_at(own.address, place.master_port)) return std::move(*made);
    // Not one of this host's addresses, so try the next; any other reason is a refusal.
    if (errno != EADDRNOTAVAIL) throw refuse();
  }
  for (const char* const all : {"::", "0.0.0.0"}) {
    if (auto made = listen_at(all, place.master_port)) {
      log_warning(
          "MASTER_ADDR={} is no address of an interface of rank 0's host: its store listens on all of them. "
          "Name an address of that host to narrow it{}",
          place.master_address,
          place.secret.empty() ? ", and give the job a HOLDFAST_JOB_SECRET: anybody can talk to it" : "");
      return std::move(*made);
    }
    if (errno == EADDRINUSE) break;
  }
  // errno has the reason of the last address that was tried.
  throw refuse();
}

std::shared_ptr<RankStore> make_store(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  if (place.world_size == 1) return std::make_shared<ForeignStore>(c10::make_intrusive<c10d::HashStore>());
  StoreConnection::Place where{host_to_meet_at(place), place.master_port, place.secret};
  std::shared_ptr<StoreServer> server;
  if (keeps_it) {
    Socket listening = listen_for(place);
    where.host = own_end(listening.get()).first;
    if (where.host.empty()) where.host = "127.0.0.1";
    server = std::make_shared<StoreServer>(std::move(listening), place.secret, place.world_size);
  }
  // Captured by value: within() may leave this work behind.
  const auto made = std::make_shared<std::shared_ptr<RankStore>>();
  within(limit + kMargin,
         [made, where, limit, server, agents = place.agent_keeps_store] {
           if (agents) {
             c10d::TCPStoreOptions options;
             options.port = where.port;
             options.waitWorkers = false;
             options.timeout = std::chrono::ceil<std::chrono::milliseconds>(limit);
             *made = std::make_shared<ForeignStore>(c10::make_intrusive<c10d::TCPStore>(where.host, options));
           } else {
             *made = std::make_shared<StoreConnection>(where, limit, server);
           }
         },
         {.stop = true});
  return *made;
}

// Reports that the store belongs to another job.
[[noreturn]] void refuse_other_secret(const LaunchEnvironment& place, const char* how) {
  throw UsageError("rank " + std::to_string(place.rank) + " of job " + place.job + " met a store at " +
                   port_of(place) + " that does not know this job's secret (" + how +
                   "): two jobs at one port; give each its own MASTER_PORT, and all processes of one job the "
                   "same HOLDFAST_JOB_SECRET");
}

std::shared_ptr<RankStore> reach(const LaunchEnvironment& place, Duration limit, bool keeps_it) {
  const std::string who = "rank " + std::to_string(place.rank);
  std::string reason;
  try {
    return make_store(place, limit, keeps_it);
  } catch (const SilentStore& silent) {
    reason = silent.what();
  } catch (const OtherSecret& other) {
    refuse_other_secret(place, other.what());
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

// Without the secret nobody can guess a key, also in a store that torchrun keeps.
std::string prefix_of(const LaunchEnvironment& place) {
  const std::string stem = "holdfast/";
  return place.secret.empty() ? stem : stem + in_hex(keyed_hash(place.secret, "keys")).substr(0, 32) + "/";
}

}  // namespace

std::string brief(const std::exception& error) {
  const auto* const torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch != nullptr ? torch->what_without_backtrace() : what_of(error);
  return text.substr(0, text.find('\n'));
}

StoreLine meet(const LaunchEnvironment& place, Duration limit) {
  // Before the first connection: a thousand ranks need thousands of descriptors.
  make_room_for_ranks(place.rank, place.world_size);
  const SteadyTime end = Clock::real().now() + limit;
  const bool keeps_it = place.rank == 0 && !place.agent_keeps_store;
  bool too_early = false;
  for (SteadyTime try_until = end;; try_until = Clock::real().now() + limit) {
    StoreLine line(reach(place, limit, keeps_it), prefix_of(place));
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

std::shared_ptr<RankStore> connect_again(const LaunchEnvironment& place, const StoreLine& line,
                                         Duration limit) {
  const auto met = std::dynamic_pointer_cast<StoreConnection>(line.store());
  if (met == nullptr) return reach(place, limit, false);
  const auto made = std::make_shared<std::shared_ptr<RankStore>>();
  try {
    within(limit + kMargin, [made, met] { *made = met->again(); }, {.stop = true});
  } catch (const SilentStore& silent) {
    throw GroupError("rank 0's store at " + port_of(place) + " went silent when the ranks had met (" +
                     silent.what() + "): rank 0 has ended or hangs; its log says why");
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw GroupError("rank 0's store at " + port_of(place) + " closed when the ranks had met (" +
                     brief(error) + "): rank 0 has ended; its log says why");
  }
  return *made;
}

c10::intrusive_ptr<c10d::Store> c10d_store_of(const StoreLine& line, Duration limit) {
  if (const auto own = std::dynamic_pointer_cast<StoreConnection>(line.store())) {
    return c10::make_intrusive<StoreClient>(own, limit);
  }
  return dynamic_cast<const ForeignStore&>(*line.store()).store();
}

}}  // namespace holdfast::v0_2
