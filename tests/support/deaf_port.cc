#include "support/deaf_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast::test {
namespace {

constexpr int kMostInQueue = 16;
constexpr int kLongEnough = 20;  // ms; the loopback answers at once, or never if the queue is full

}  // namespace

DeafPort::DeafPort() {
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listening < 0) throw IoError("socket", "127.0.0.1", errno);
  sockets_.push_back(listening);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  // With the least queue Linux still lets one connection wait.
  if (bind(listening, generic, size) != 0 || listen(listening, 0) != 0 ||
      getsockname(listening, generic, &size) != 0) {
    const int code = errno;
    close(listening);
    throw IoError("bind", "127.0.0.1", code);
  }
  port_ = ntohs(address.sin_port);
  // The kernel completes connections for a program that does not accept, until the queue is full.
  for (int i = 0; i < kMostInQueue; ++i) {
    const int filler = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (filler < 0) break;
    sockets_.push_back(filler);
    static_cast<void>(connect(filler, generic, size));  // completes in the background
    pollfd writable{.fd = filler, .events = POLLOUT, .revents = 0};
    // Not answered in time: the queue is full, as wanted.
    if (::poll(&writable, 1, kLongEnough) == 0) break;
  }
}

DeafPort::~DeafPort() {
  for (const int descriptor : sockets_) close(descriptor);
}

std::string DeafPort::host() const { return "127.0.0.1:" + std::to_string(port_); }

}  // namespace holdfast::test
