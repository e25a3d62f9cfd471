// The store over which the ranks of a run meet, in rank 0's process: keys and values, for clients that prove
// that they know the run's secret. A client without proof may send 256 bytes within 10 s, and the number of
// such clients is limited. Nothing is encrypted. store_table.h says what it keeps and answers.
//
// It replaces c10d's TCPStore, whose server listens on all interfaces and trusts everybody. With libuv that
// one lists all keys to any client (2.10 on), so unguessable names do not help. Without libuv it waits for
// the rest of a request that a stranger began.
//
// Its own process can ask it without a connection: a seat (store_seat.h).
//
// Errors: std::system_error without a thread, an epoll or an eventfd. Threads: any. Costs one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"
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
  // `listening` is a non-blocking, listening socket. With an empty secret every client is trusted. `ranks`: how
  // many connect in one moment; a rank has one connection at a time that has proved nothing yet.
  StoreServer(Socket listening, std::string secret, int ranks = 1);
  ~StoreServer();  // closes all connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // A client in this process. `answer` gets its answers, on any thread; it must not call the server.
  using Answer = std::function<void(const Message&)>;
  StoreTable::Client take_seat(Answer answer) HOLDFAST_EXCLUDES(mutex_);
  // Handles a request of a seat on this thread, which also sends a few answers to others. std::runtime_error for a
  // malformed one.
  void handle(StoreTable::Client seat, Message request) HOLDFAST_EXCLUDES(mutex_);
  // As the end of a connection. Afterwards `answer` is not called. Idempotent.
  void leave_seat(StoreTable::Client seat) HOLDFAST_EXCLUDES(mutex_);

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
  bool heard_of_end();
  int time_left() HOLDFAST_EXCLUDES(mutex_);
  void wake() noexcept;
  void let_in() HOLDFAST_REQUIRES(mutex_);
  void serve(Client& client, bool writable) HOLDFAST_REQUIRES(mutex_);
  void read(Client& client) HOLDFAST_REQUIRES(mutex_);
  void greet(Client& client, const Message& proof) HOLDFAST_REQUIRES(mutex_);
  void answer(StoreTable::Client number, const Message& answer) HOLDFAST_REQUIRES(mutex_);
  void send(Client& client, const Message& message) HOLDFAST_REQUIRES(mutex_);
  void write(Client& client) HOLDFAST_REQUIRES(mutex_);
  bool write_one() HOLDFAST_EXCLUDES(mutex_);
  void write_all() HOLDFAST_EXCLUDES(mutex_);
  void await(Client& client, bool writable) HOLDFAST_REQUIRES(mutex_);
  bool remove_ended() HOLDFAST_EXCLUDES(mutex_);
  void dismiss_strangers() HOLDFAST_EXCLUDES(mutex_);
  void remove(Clients& from, Clients::iterator client) HOLDFAST_REQUIRES(mutex_);

  Socket listening_;
  Socket news_;  // an eventfd: answers to send, or the end
  std::atomic<bool> ending_{false};
  Socket epoll_;
  const std::string secret_;
  const std::size_t most_strangers_;
  // Held for one message at a time, so that a seat never waits for the messages of a thousand clients.
  Mutex mutex_;
  Clients strangers_ HOLDFAST_GUARDED_BY(mutex_);  // oldest first
  Clients members_ HOLDFAST_GUARDED_BY(mutex_);    // have proved that they know the secret
  bool some_are_over_ HOLDFAST_GUARDED_BY(mutex_) = false;
  StoreTable::Client newest_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  std::unordered_map<StoreTable::Client, Client*> by_number_ HOLDFAST_GUARDED_BY(mutex_);
  std::unordered_map<StoreTable::Client, Answer> seats_ HOLDFAST_GUARDED_BY(mutex_);
  std::vector<Client*> writing_ HOLDFAST_GUARDED_BY(mutex_);
  StoreTable table_ HOLDFAST_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> messages_in_{0}, bytes_in_{0}, bytes_out_{0};
  mutable std::thread thread_;
};

}}  // namespace holdfast::v0_2
