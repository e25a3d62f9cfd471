// The store over which the ranks of a run meet, in rank 0's process: keys and values, for clients that prove
// that they know the run's secret. A client without proof may send 256 bytes within 10 s, and the number of
// such clients is limited. Nothing is encrypted.
//
// It replaces c10d's TCPStore, whose server listens on all interfaces and trusts everybody. With libuv that
// one lists all keys to any client (2.10 on), so unguessable names do not help. Without libuv it waits for
// the rest of a request that a stranger began.
//
// Errors: std::system_error without a thread or an eventfd. Threads: any. Costs one thread.
#pragma once

#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "holdfast/ranks/sockets.h"
#include "holdfast/ranks/store_messages.h"

namespace holdfast { inline namespace v1 {

class StoreServer {
 public:
  // `listening` is a non-blocking, listening socket. With an empty secret every client is trusted.
  StoreServer(Socket listening, std::string secret);
  ~StoreServer();  // closes all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  struct Client {
    Socket socket;
    SteadyTime came;
    std::string nonce;
    bool trusted = false;
    bool over = false;
    std::vector<std::string> will = {};
    std::string in = {};
    std::string out = {};
  };

  void work();
  void let_in();
  void read(Client& client);
  void greet(Client& client, const Message& proof);
  Message answer(const Message& request);
  static void write(Client& client);
  void dismiss();

  Socket listening_;
  Socket end_;  // an eventfd
  std::string secret_;
  std::list<Client> clients_;  // oldest first
  std::unordered_map<std::string, std::string> values_;
  std::thread thread_;
};

}}  // namespace holdfast::v1
