// Reserves a port of this host's loopback address. The kernel chooses the port, and this socket listens on it
// until another process takes it over; so no other program can get it.
//
// Errors: IoError. Threads: one.
#pragma once

#include <cstdint>

namespace holdfast { inline namespace v0_2 {

class ListeningSocket {
 public:
  ListeningSocket();
  ~ListeningSocket();
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;

  int descriptor() const { return descriptor_; }
  std::uint16_t port() const { return port_; }

 private:
  int descriptor_ = -1;
  std::uint16_t port_ = 0;
};

}}  // namespace holdfast::v0_2
