#include "holdfast/cli/launch/listening_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kWaiting = 4096;  // ranks may connect before rank 0 accepts

}  // namespace

ListeningSocket::ListeningSocket() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  // Port 0, from the initializer above: the kernel chooses a free one.
  // Closed at exec in every rank but rank 0, whose start clears the flag. So the port is free once rank 0 has
  // ended.
  descriptor_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const char* failed = nullptr;
  if (descriptor_ < 0) {
    failed = "socket";
  } else if (bind(descriptor_, generic, length) != 0) {
    failed = "bind";
  } else if (listen(descriptor_, kWaiting) != 0) {
    failed = "listen";
  } else if (getsockname(descriptor_, generic, &length) != 0) {
    failed = "getsockname";
  }
  if (failed != nullptr) {
    // Kept before close() can change it.
    const int code = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw IoError(failed, "127.0.0.1", code);
  }
  port_ = ntohs(address.sin_port);
}

ListeningSocket::~ListeningSocket() { close(descriptor_); }

}}  // namespace holdfast::v0_2
