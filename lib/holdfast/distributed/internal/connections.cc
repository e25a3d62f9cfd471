#include "holdfast/distributed/internal/connections.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string_view>

namespace holdfast { inline namespace v0_2 {
namespace {

int port_at(const sockaddr_storage& end) {
  return ntohs(end.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(end).sin6_port
                                         : reinterpret_cast<const sockaddr_in&>(end).sin_port);
}

// Empty if it is no Internet socket with two ends, or if one end has that port.
// Number and both ends: the number alone may be another socket's by now.
std::string ends_of(int socket, int store_port) {
  std::string text = std::to_string(socket);
  for (const auto& ask : {getsockname, getpeername}) {
    sockaddr_storage end{};
    socklen_t length = sizeof end;
    if (ask(socket, reinterpret_cast<sockaddr*>(&end), &length) != 0) return {};
    if (end.ss_family != AF_INET && end.ss_family != AF_INET6) return {};
    if (port_at(end) == store_port) return {};
    text += " " + std::string(reinterpret_cast<const char*>(&end), length);
  }
  return text;
}

}  // namespace

std::set<std::string> Connections::all(int store_port) {
  std::set<std::string> found;
  std::error_code error;
  std::filesystem::directory_iterator entries("/proc/self/fd", error);
  for (const std::filesystem::directory_iterator end; !error && entries != end; entries.increment(error)) {
    auto text = ends_of(std::stoi(entries->path().filename().native()), store_port);
    if (!text.empty()) found.insert(std::move(text));
  }
  return found;
}

void Connections::add_since(const std::set<std::string>& before, int store_port) {
  // Gloo does not tell its sockets, so what has appeared while it connected is taken.
  const auto now = all(store_port);
  std::unique_lock lock(mutex_);
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::inserter(own_, own_.end()));
  // A shut down that came while the group was being made counts for the new ones as well.
  if (!shut_) return;
  lock.unlock();
  shut();
}

void Connections::shut() noexcept {
  const std::lock_guard lock(mutex_);
  shut_ = true;
  for (const std::string& own : own_) {
    const int socket = std::stoi(own);
    try {
      // Compared again: another thread may have opened something else under this number.
      // Not close(): the descriptor is Gloo's, and its number could become another file's while Gloo still
      // uses it.
      if (ends_of(socket, -1) == own) ::shutdown(socket, SHUT_RDWR);
    } catch (const std::bad_alloc&) {  // its timeout remains
    }
  }
}

}}  // namespace holdfast::v0_2
