// A port of this host's loopback address that nobody else can get: the kernel chooses it, and this socket
// listens on it until another process has taken it over.
//
// Errors: IoError. Threads: one.
#pragma once

#include <cstdint>

namespace holdfast::inline v1 {

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

}  // namespace holdfast::inline v1
