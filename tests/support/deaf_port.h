// A port of 127.0.0.1 that neither accepts a connection nor refuses one.
#pragma once

#include <string>
#include <vector>

namespace holdfast::test {

class DeafPort {
 public:
  DeafPort();  // IoError
  ~DeafPort();
  DeafPort(const DeafPort&) = delete;
  DeafPort& operator=(const DeafPort&) = delete;
  std::string host() const;
  std::string endpoint() const { return "http://" + host(); }

 private:
  std::vector<int> sockets_;  // the listening socket, and those that fill its queue
  int port_ = 0;
};

}  // namespace holdfast::test
