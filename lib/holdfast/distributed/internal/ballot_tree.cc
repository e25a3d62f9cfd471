#include "holdfast/distributed/internal/ballot_tree.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <list>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "holdfast/distributed/internal/keyed_hash.h"
#include "holdfast/distributed/internal/meeting.h"
#include "holdfast/distributed/internal/sockets.h"

namespace holdfast { inline namespace v1 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPolite = 10s;      // longest time until a connected child says which rank it is
constexpr std::size_t kWord = 32;      // 16 random bytes
constexpr std::size_t kGreeting = 48;  // the word, and the rank
constexpr std::size_t kMostWaiting = 64;
constexpr Duration kSlice = 200ms;  // between two checks of the alarm

std::string where_of(const Socket& listening) {
  const auto [address, port] = own_end(listening.get());
  return address + " " + std::to_string(port);
}

}  // namespace

BallotTree::BallotTree(StoreLine line, const std::string& address, int rank, int world_size, Duration limit) {
  try {
    meet(line, address, rank, world_size, limit);
    if (!children_.empty()) thread_ = std::thread([this] { work(); });
  } catch (...) {
    if (parent_ && parent_->socket >= 0) ::close(parent_->socket);
    for (const Neighbour& child : children_) {
      if (child.socket >= 0) ::close(child.socket);
    }
    throw;
  }
}

BallotTree::~BallotTree() {
  shut();
  if (thread_.joinable()) thread_.join();
  if (parent_) ::close(parent_->socket);
  for (const Neighbour& child : children_) ::close(child.socket);
}

void BallotTree::shut() noexcept {
  if (parent_) ::shutdown(parent_->socket, SHUT_RDWR);
  for (const Neighbour& child : children_) ::shutdown(child.socket, SHUT_RDWR);
}

void BallotTree::meet(StoreLine& line, const std::string& address, int rank, int world_size, Duration limit) {
  const SteadyTime end = Clock::real().now() + limit;
  const int first = 2 * rank + 1;
  for (int child = first; child < std::min(first + 2, world_size); ++child) {
    children_.push_back({.rank = child});
  }
  const auto key = [](int whose) { return "tree/" + std::to_string(whose); };
  // Published before this rank waits for its own parent.
  std::optional<Socket> listening;
  const std::string word = in_hex(random_bytes(kWord / 2));
  if (!children_.empty()) {
    listening = listen_at(address, 0);
    if (!listening) throw std::runtime_error("listening at " + address + ": " + std::strerror(errno));
    line.set(key(rank), where_of(*listening) + " " + word);
  }
  if (rank > 0) {
    parent_.emplace().rank = (rank - 1) / 2;
    std::istringstream told(line.get(key(parent_->rank), limit));
    std::string where;
    std::uint16_t port = 0;
    std::string greeting;
    told >> where >> port >> greeting;
    parent_->socket = connect_to(where, port, end, [&] {
                        line.throw_if_told_to_stop();
                        return line.hopeless();
                      }).take();
    greeting += std::to_string(rank);
    greeting.resize(kGreeting, ' ');
    if (!send_all(parent_->socket, std::as_bytes(std::span(greeting)))) {
      throw std::runtime_error("greeting " + where + ": " + std::strerror(errno));
    }
  }
  if (listening) let_in(listening->get(), word, end, line);
}

// A connection that does not send the word is a stranger's. All are read side by side: a stranger may send
// nothing.
void BallotTree::let_in(int listening, const std::string& word, SteadyTime end, const StoreLine& line) {
  struct Guest {
    Socket socket;
    SteadyTime came;
    std::string said = {};
    bool over = false;
  };
  std::vector<int> missing;
  for (const Neighbour& child : children_) missing.push_back(child.rank);
  std::list<Guest> guests;
  const auto welcome = [&](Guest& guest) {
    if (!equal_in_constant_time(std::string_view(guest.said).substr(0, word.size()), word)) return;
    const int rank = std::atoi(guest.said.c_str() + word.size());
    for (Neighbour& child : children_) {
      if (child.rank != rank || child.socket >= 0) continue;
      send_without_delay(guest.socket.get());
      ::fcntl(guest.socket.get(), F_SETFL, 0);  // blocking: messages are so small that a send never waits
      child.socket = guest.socket.take();
      std::erase(missing, rank);
    }
  };
  while (!missing.empty()) {
    std::vector<pollfd> waits = {{listening, POLLIN, 0}};
    for (const Guest& guest : guests) waits.push_back({guest.socket.get(), POLLIN, 0});
    ::poll(waits.data(), waits.size(), timeout_until(std::min(end, Clock::real().now() + kSlice)));
    const SteadyTime now = Clock::real().now();
    auto wait = waits.begin() + 1;
    for (Guest& guest : guests) {
      guest.over = now - guest.came > kPolite;
      if ((wait++)->revents == 0) continue;
      std::string more(kGreeting - guest.said.size(), ' ');
      const ssize_t got = ::recv(guest.socket.get(), more.data(), more.size(), MSG_DONTWAIT);
      if (got > 0) guest.said += more.substr(0, static_cast<std::size_t>(got));
      if (guest.said.size() == kGreeting) welcome(guest);
      guest.over = guest.over || got == 0 || guest.said.size() == kGreeting;
    }
    guests.remove_if([](const Guest& guest) { return guest.over; });
    if (waits[0].revents != 0) {
      Socket came(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (guests.size() == kMostWaiting) guests.pop_front();
      if (came.get() >= 0) guests.push_back({.socket = std::move(came), .came = now});
    }
    line.throw_if_told_to_stop();
    if (!missing.empty() && (now >= end || line.hopeless())) {
      throw std::runtime_error(ranks_in_words(missing) + " did not come to exchange ballots");
    }
  }
}

void BallotTree::post(const Ballot& mine) {
  std::unique_lock lock(mutex_);
  if (!broken_.empty()) throw_broken();
  pending_ = true;
  mine_ = mine;
  combine();
}

std::optional<Ballot> BallotTree::result(Duration limit) {
  const SteadyTime end = Clock::real().now() + limit;
  std::unique_lock lock(mutex_);
  if (children_.empty()) {  // no thread: read here
    while (!largest_ && broken_.empty()) {
      pollfd wait{parent_->socket, POLLIN, 0};
      if (!take(*parent_) && broken_.empty() && ::poll(&wait, 1, timeout_until(end)) == 0) break;
    }
  } else {
    came_.wait_until(lock, end, [&] { return largest_.has_value() || !broken_.empty(); });
  }
  if (largest_) {
    pending_ = false;
    return std::exchange(largest_, std::nullopt);
  }
  if (!broken_.empty()) throw_broken();
  return std::nullopt;
}

// Requires the lock. When this rank's and its children's ballots are there, sends their maximum to the
// parent.
void BallotTree::combine() {
  if (!mine_) return;
  Ballot largest = *mine_;
  for (const Neighbour& child : children_) {
    if (!child.ballot) return;
    largest = larger_of(largest, *child.ballot);
  }
  mine_.reset();
  for (Neighbour& child : children_) child.ballot.reset();
  if (parent_) {
    send(*parent_, largest);
  } else {
    come_down(largest);
  }
}

// To the children first: this rank may leave as soon as it has the result.
void BallotTree::come_down(const Ballot& largest) {
  for (Neighbour& child : children_) send(child, largest);
  largest_ = largest;
  came_.notify_all();
}

// Requires the lock. Reads without waiting. Returns true if a whole ballot arrived and was handled.
bool BallotTree::take(Neighbour& one) {
  while (one.filled < one.bytes.size()) {
    const ssize_t got =
        ::recv(one.socket, one.bytes.data() + one.filled, one.bytes.size() - one.filled, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
      lose(got == 0 ? "closed" : std::strerror(errno));
      return false;
    }
    one.filled += static_cast<std::size_t>(got);
  }
  one.filled = 0;
  Ballot ballot{};
  std::memcpy(ballot.data(), one.bytes.data(), sizeof ballot);
  if (parent_ && &one == &*parent_) {
    come_down(ballot);
  } else {
    one.ballot = ballot;
    combine();
  }
  return true;
}

void BallotTree::work() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::vector<Neighbour*> neighbours;
  if (parent_) neighbours.push_back(&*parent_);
  for (Neighbour& child : children_) neighbours.push_back(&child);
  std::vector<pollfd> waits;
  for (const Neighbour* one : neighbours) waits.push_back({one->socket, POLLIN, 0});
  while (::poll(waits.data(), waits.size(), -1) >= 0 || errno == EINTR) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].revents != 0) take(*neighbours[i]);
    }
    if (!broken_.empty()) return;
  }
  const std::string how = std::strerror(errno);
  const std::lock_guard lock(mutex_);
  lose(how);
}

// Requires the lock.
void BallotTree::send(Neighbour& one, const Ballot& ballot) {
  if (!send_all(one.socket, std::as_bytes(std::span(ballot)))) lose(std::strerror(errno));
}

// Closes all connections, so that all ranks notice now. The neighbour of a broken connection need not be the
// lost rank.
void BallotTree::lose(const std::string& how) {
  if (broken_.empty()) broken_ = "a connection for ballots: " + how;
  shut();
  came_.notify_all();
}

void BallotTree::throw_broken() const { C10_THROW_ERROR(DistBackendError, broken_); }

}}  // namespace holdfast::v1
