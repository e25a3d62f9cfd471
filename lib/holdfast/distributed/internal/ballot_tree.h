// Exchanges ballots (ranks/rank_channel.h) in a binary tree: each rank has a connection to its parent and its
// children. The maximum goes up, the result comes down. A rank sends one message up and one to each child,
// some hundred bytes. Gloo's all-reduce sends nine and wakes threads for each.
//
// A leaf needs no thread: post() sends its ballot, and result() reads the answer from the socket. A rank with
// children has a thread, so that no rank waits for a parent that computes.
//
// Errors: the constructor throws std::runtime_error, or what StoreLine throws. post() and result() throw
// c10::DistBackendError if a connection broke; this is final. Threads: one thread; shut() from any thread.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/distributed/internal/store_line.h"
#include "holdfast/ranks/rank_channel.h"

namespace holdfast { inline namespace v1 {

class BallotTree {
 public:
  // Collective. `address`: this host's, for the children. All ranks must come within `limit`.
  BallotTree(StoreLine line, const std::string& address, int rank, int world_size, Duration limit);
  ~BallotTree();
  BallotTree(const BallotTree&) = delete;
  BallotTree& operator=(const BallotTree&) = delete;

  bool pending() const { return pending_; }
  void post(const Ballot& mine);                 // requires !pending()
  std::optional<Ballot> result(Duration limit);  // requires pending(); nullopt: no result yet
  // Breaks all connections, which the partners notice.
  void shut() noexcept;

 private:
  struct Neighbour {
    int rank = -1;
    int socket = -1;
    std::array<std::byte, sizeof(Ballot)> bytes{};
    std::size_t filled = 0;
    std::optional<Ballot> ballot = {};
  };

  void meet(StoreLine& line, const std::string& address, int rank, int world_size, Duration limit);
  void let_in(int listening, const std::string& word, SteadyTime end, const StoreLine& line);
  void work();
  void combine();
  void come_down(const Ballot& largest);
  bool take(Neighbour& one);
  void send(Neighbour& one, const Ballot& ballot);
  void lose(const std::string& how);
  [[noreturn]] void throw_broken() const;

  std::optional<Neighbour> parent_;
  std::vector<Neighbour> children_;
  std::mutex mutex_;
  std::condition_variable came_;
  bool pending_ = false;        // used by the training thread only
  std::optional<Ballot> mine_;  // posted and not yet combined
  std::optional<Ballot> largest_;
  std::string broken_;
  std::thread thread_;
};

}}  // namespace holdfast::v1
