// TCP for a run's store.
//
// Errors: std::runtime_error with address and errno. Threads: any, one at a time per socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Closes the socket in its destructor.
class HOLDFAST_EXPORT Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  ~Socket();
  Socket(Socket&& other) noexcept : number_(other.take()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  int get() const { return number_; }
  int take() { return std::exchange(number_, -1); }

 private:
  int number_;
};

// A numeric address of a host.
struct Endpoint {
  std::string address;
  bool loopback = false;
};
// The addresses of a name, in the resolver's order. Empty: it has none (yet).
HOLDFAST_EXPORT std::vector<Endpoint> endpoints_of(const std::string& host);

// Listens at one of this host's addresses. Port 0: any free one. Empty address: all interfaces. nullopt with
// errno if it cannot.
HOLDFAST_EXPORT std::optional<Socket> listen_at(const std::string& address, std::uint16_t port);
// The local end of a socket. Empty address: all interfaces.
HOLDFAST_EXPORT std::pair<std::string, std::uint16_t> own_end(int socket);

// Retries until `end`, or until `give_up` returns true.
Socket connect_to(const std::string& host, std::uint16_t port, SteadyTime end,
                  const std::function<bool()>& give_up);

// Milliseconds for poll(); 0 if `end` has passed.
int timeout_until(SteadyTime end);
void send_without_delay(int socket);
bool send_all(int socket, std::span<const std::byte> bytes);

}}  // namespace holdfast::v0_2
