#include "holdfast/ranks/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// The other process may start later: the first tries come soon, and later ones cost little.
constexpr Duration kFirstRetry = 20ms;
constexpr Duration kLongestRetry = 500ms;
// A host that swallows packets must not take all the time: another address of the name may answer.
constexpr Duration kOneTry = 10s;
constexpr Duration kBetweenQuestions = 200ms;  // between two calls of give_up
constexpr int kBacklog = 4096;                 // connections that wait to be accepted

struct FreeAddress {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddress>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const char* const name = host.empty() ? nullptr : host.c_str();
  if (getaddrinfo(name, std::to_string(port).c_str(), &hints, &list) != 0) return nullptr;
  return Addresses(list);
}

bool has_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24) == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string in_numbers(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? text.data() : std::string();
}

// On failure errno has the reason.
Socket try_to_connect(const addrinfo& target, SteadyTime end, const std::function<bool()>& give_up) {
  Socket made(::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() < 0) return made;
  // A connection to this machine may succeed at once.
  if (::connect(made.get(), target.ai_addr, target.ai_addrlen) != 0) {
    // A socket that does not block connects in the background, and says so by this error.
    if (errno != EINPROGRESS) return Socket();
    pollfd wait{made.get(), POLLOUT, 0};
    // In short waits, so that a signal or a lost rank ends it soon.
    while (::poll(&wait, 1, timeout_until(std::min(end, Clock::real().now() + kBetweenQuestions))) <= 0) {
      if (Clock::real().now() < end && !give_up()) continue;
      errno = ETIMEDOUT;
      return Socket();
    }
  }
  int error = 0;
  // Whether a connection that was begun has succeeded stands here.
  socklen_t size = sizeof error;
  if (::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
    errno = error;
    return Socket();
  }
  send_without_delay(made.get());
  // Blocking from here on: the callers wait with poll() where they need a limit.
  ::fcntl(made.get(), F_SETFL, 0);
  return made;
}

}  // namespace

Socket::~Socket() {
  if (number_ >= 0) ::close(number_);
}

std::vector<Endpoint> endpoints_of(const std::string& host) {
  std::vector<Endpoint> found;
  const Addresses list = resolve(host, 0, 0);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    found.push_back({in_numbers(one->ai_addr, one->ai_addrlen), has_loopback(one->ai_addr)});
  }
  return found;
}

std::optional<Socket> listen_at(const std::string& address, std::uint16_t port) {
  // What errno says if no address fits at all.
  errno = EADDRNOTAVAIL;
  const Addresses list = resolve(address, port, AI_PASSIVE | AI_NUMERICHOST);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    // Non-blocking: accept() must not wait for a client that has gone meanwhile.
    Socket made(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (made.get() < 0) continue;
    const int yes = 1;
    // Without it, a restart within a minute finds the port still taken by the dead run's connections.
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(made.get(), one->ai_addr, one->ai_addrlen) == 0 && ::listen(made.get(), kBacklog) == 0)
      return made;
  }
  return std::nullopt;
}

std::pair<std::string, std::uint16_t> own_end(int socket) {
  sockaddr_storage end{};
  socklen_t length = sizeof end;
  auto* const generic = reinterpret_cast<sockaddr*>(&end);
  if (::getsockname(socket, generic, &length) != 0) return {};
  if (end.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(end);
    // An empty address stands for all interfaces.
    return {four.sin_addr.s_addr == htonl(INADDR_ANY) ? "" : in_numbers(generic, length),
            ntohs(four.sin_port)};
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(end);
  return {IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) ? "" : in_numbers(generic, length), ntohs(six.sin6_port)};
}

Socket connect_to(const std::string& host, std::uint16_t port, SteadyTime end,
                  const std::function<bool()>& give_up) {
  for (Duration pause = kFirstRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    std::string why = "no such host";
    // Resolves the name at each try: DNS may know it only when that machine is up.
    const Addresses list = resolve(host, port, 0);
    for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
      Socket made = try_to_connect(*one, std::min(end, Clock::real().now() + kOneTry), give_up);
      if (made.get() >= 0) return made;
      why = std::strerror(errno);
    }
    if (Clock::real().now() >= end || give_up()) {
      throw std::runtime_error("no connection to " + host + ":" + std::to_string(port) + ": " + why);
    }
    Clock::real().sleep_for(pause);
  }
}

int timeout_until(SteadyTime end) {
  // Rounded up, so that a wait does not end just before its time and loop.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::real().now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

void send_without_delay(int socket) {
  // Messages here are small and wait for answers; collecting them would cost 40 ms each.
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // MSG_NOSIGNAL: a closed connection is an error here and must not raise SIGPIPE.
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

}}  // namespace holdfast::v0_2
