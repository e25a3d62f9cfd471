#include "holdfast/distributed/internal/local_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace holdfast { inline namespace v0_2 {
namespace {

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &four->sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto* const six = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) return {};  // useless without its interface
    inet_ntop(AF_INET6, &six->sin6_addr, text.data(), text.size());
  }
  return text.data();
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

// IPv4 before IPv6, as c10d does.
template <class Wanted>
std::string first_address(const Wanted& wanted) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || !wanted(*entry)) continue;
      if (std::string text = text_of(entry->ifa_addr); !text.empty()) return text;
    }
  }
  return {};
}

std::string source_towards(const addrinfo& target) {
  // A datagram socket sends nothing on connect(), but the kernel chooses the address that it would send
  // from.
  const int probe = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  const bool known = connect(probe, target.ai_addr, target.ai_addrlen) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  close(probe);
  return known ? text_of(reinterpret_cast<const sockaddr*>(&own)) : std::string();
}

}  // namespace

std::string address_towards(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  // One type of socket, because getaddrinfo() otherwise lists each address once for every type.
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::string address;
  for (const addrinfo* target = found; target != nullptr && address.empty(); target = target->ai_next) {
    address = source_towards(*target);
  }
  // A host whose name points to its own loopback must still name an address that others can reach.
  if (is_loopback(address)) {
    const std::string other = first_address([](const ifaddrs& entry) {
      return (entry.ifa_flags & IFF_UP) != 0 && (entry.ifa_flags & IFF_LOOPBACK) == 0;
    });
    if (!other.empty()) return other;
  }
  return address;
}

std::string address_of_interface(const std::string& name) {
  return first_address([&](const ifaddrs& entry) { return name == entry.ifa_name; });
}

}}  // namespace holdfast::v0_2
