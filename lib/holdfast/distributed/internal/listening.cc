#include "holdfast/distributed/internal/listening.h"

#include <netdb.h>
#include <netinet/in.h>
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
constexpr int kBetweenQuestions = 200;  // ms between two calls of give_up
constexpr int kBacklog = 4096;          // connections that wait to be accepted

struct FreeAddress {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddress>;

Addresses resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return nullptr;
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

// 0, or the reason why nobody answers there.
int try_to_connect(const addrinfo& target, SteadyTime end, const std::function<bool()>& give_up) {
  const int made = ::socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return errno;
  int error = ::connect(made, target.ai_addr, target.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd wait{made, POLLOUT, 0};
    socklen_t size = sizeof error;
    // In short waits, so that a signal ends it soon.
    while (::poll(&wait, 1, kBetweenQuestions) <= 0 && Clock::real().now() < end && !give_up()) continue;
    // Whether a connection that was begun has succeeded stands here.
    if (wait.revents == 0) {
      error = ETIMEDOUT;
    } else if (::getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  ::close(made);
  return error;
}

}  // namespace

std::vector<Endpoint> endpoints_of(const std::string& host) {
  std::vector<Endpoint> found;
  const Addresses list = resolve(host, 0, 0);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    found.push_back({in_numbers(one->ai_addr, one->ai_addrlen), has_loopback(one->ai_addr)});
  }
  return found;
}

int listen_at(const std::string& address, std::uint16_t port) {
  // What errno says if no address fits at all.
  errno = EADDRNOTAVAIL;
  const Addresses list = resolve(address, port, AI_PASSIVE | AI_NUMERICHOST);
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const int made = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) continue;
    const int yes = 1;
    // Without it, a restart within a minute finds the port still taken by the dead run's connections.
    ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(made, one->ai_addr, one->ai_addrlen) == 0 && ::listen(made, kBacklog) == 0) return made;
    const int reason = errno;
    ::close(made);
    errno = reason;
  }
  return -1;
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

void await_listener(const std::string& host, std::uint16_t port, SteadyTime end,
                    const std::function<bool()>& give_up) {
  for (Duration pause = kFirstRetry;; pause = std::min(2 * pause, kLongestRetry)) {
    std::string why = "no such host";
    // Resolves the name at each try: DNS may know it only when that machine is up.
    const Addresses list = resolve(host, port, 0);
    for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
      const int error = try_to_connect(*one, std::min(end, Clock::real().now() + kOneTry), give_up);
      if (error == 0) return;
      why = std::strerror(error);
    }
    if (Clock::real().now() >= end || give_up()) {
      throw std::runtime_error("no connection to " + host + ":" + std::to_string(port) + ": " + why);
    }
    Clock::real().sleep_for(pause);
  }
}

}}  // namespace holdfast::v0_2
