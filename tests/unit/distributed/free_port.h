// A port of this host that nobody listens at.
#pragma once

#include <unistd.h>

#include <cstdint>

#include "holdfast/distributed/internal/listening.h"

namespace holdfast { namespace test {

inline std::uint16_t free_port() {
  const int socket = listen_at("127.0.0.1", 0);
  const std::uint16_t port = own_end(socket).second;
  ::close(socket);
  return port;
}

}}  // namespace holdfast::test
