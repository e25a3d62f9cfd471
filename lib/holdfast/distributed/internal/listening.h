// The socket of rank 0's store, and whether somebody listens at it. c10d's store itself would listen on all
// interfaces, and its clients wait for it without asking whether to stop.
//
// Errors: as the functions say. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

// A numeric address of a host.
struct Endpoint {
  std::string address;
  bool loopback = false;
};
// The addresses of a name, in the resolver's order. Empty: it has none (yet).
std::vector<Endpoint> endpoints_of(const std::string& host);

// Listens at one of this host's addresses. Port 0: any free one. -1 with errno if it cannot. The caller owns
// the socket.
int listen_at(const std::string& address, std::uint16_t port);
// The local end of a socket. Empty address: all interfaces.
std::pair<std::string, std::uint16_t> own_end(int socket);

// Returns when somebody listens there. std::runtime_error with the reason at `end`, or when `give_up` returns
// true.
void await_listener(const std::string& host, std::uint16_t port, SteadyTime end,
                    const std::function<bool()>& give_up);

}}  // namespace holdfast::v0_2
