// The exchange of ballots (checkpoint/companions.h): each rank has a connection to its parent and to its
// children in a binary tree; the maximum goes up, and the result down. So a rank sends one message up and one
// to each child, of some hundred bytes, where an all-reduce of Gloo sends nine and wakes its threads for
// each.
//
// A leaf needs no thread: its ballot goes out with post(), and the answer lies in the socket when result()
// asks. Ranks with children have one, so that nobody waits for a parent that computes.
//
// Errors: the constructor throws std::runtime_error, or what the store's line throws; post() and result()
// throw c10::DistBackendError when a connection broke, for good. Threads: one, but for shut(), which is
// any's.
#pragma once

#include <array>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/distributed/internal/store_line.h"

namespace holdfast::inline v1 {

class BallotTree {
 public:
  // Collective. `address` is this host's, for the children. Everybody comes within `limit`.
  BallotTree(StoreLine line, const std::string& address, int rank, int world_size, Duration limit);
  ~BallotTree();
  BallotTree(const BallotTree&) = delete;
  BallotTree& operator=(const BallotTree&) = delete;

  bool pending() const { return pending_; }
  void post(const Ballot& mine);                 // requires !pending()
  std::optional<Ballot> result(Duration limit);  // requires pending(); nullopt: not yet
  // Breaks all connections; the partners learn of it.
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
  bool pending_ = false;        // the training thread's
  std::optional<Ballot> mine_;  // posted, and not combined yet
  std::optional<Ballot> largest_;
  std::string broken_;
  std::thread thread_;
};

}  // namespace holdfast::inline v1
