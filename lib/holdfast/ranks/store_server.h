// The store over which the ranks of a run meet, in rank 0's process: keys and values, for clients that prove
// that they know the run's secret. A client without proof may send 256 bytes within 10 s, and the number of
// such clients is limited. Nothing is encrypted. store_table.h says what it keeps and answers.
//
// It replaces c10d's TCPStore, whose server listens on all interfaces and trusts everybody. With libuv that
// one lists all keys to any client (2.10 on), so unguessable names do not help. Without libuv it waits for
// the rest of a request that a stranger began.
//
// Errors: std::system_error without a thread, an epoll or an eventfd. Threads: any. Costs one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/ranks/sockets.h"
#include "holdfast/ranks/store_messages.h"
#include "holdfast/ranks/store_table.h"

namespace holdfast { inline namespace v0_2 {

// Messages and bytes of a store since it began, and its thread's processor time.
struct StoreTraffic {
  std::uint64_t messages_in = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  Duration processor{};
};

class HOLDFAST_EXPORT StoreServer {
 public:
  // `listening` is a non-blocking, listening socket. With an empty secret every client is trusted. `ranks`:
  // how many connect in one moment; a rank has one connection at a time that has proved nothing yet.
  StoreServer(Socket listening, std::string secret, int ranks = 1);
  ~StoreServer();  // closes all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  StoreTraffic traffic() const;

 private:
  struct Client {
    Socket socket;
    SteadyTime came;
    std::string nonce;
    StoreTable::Client number = 0;
    bool trusted = false;
    bool over = false;
    bool writes = false;   // has answers to send
    bool blocked = false;  // does not read its answers
    std::string in = {};
    std::string out = {};
  };
  using Clients = std::list<Client>;  // entries do not move: epoll has their addresses

  void work();
  int time_left() const;
  void let_in();
  void serve(Client& client, bool writable);
  void read(Client& client);
  void greet(Client& client, const Message& proof);
  void send(Client& client, const Message& message);
  void write(Client& client);
  void write_all();
  void await(Client& client, bool writable);
  void dismiss();
  void remove(Clients& from, Clients::iterator client);

  Socket listening_;
  Socket end_;  // an eventfd
  Socket epoll_;
  const std::string secret_;
  const std::size_t most_strangers_;
  Clients strangers_;  // oldest first
  Clients members_;    // have proved that they know the secret
  bool some_are_over_ = false;
  StoreTable::Client newest_ = 0;
  std::unordered_map<StoreTable::Client, Client*> by_number_;
  std::vector<Client*> writing_;
  StoreTable table_;
  std::atomic<std::uint64_t> messages_in_{0}, bytes_in_{0}, bytes_out_{0};
  mutable std::thread thread_;
};

}}  // namespace holdfast::v0_2
