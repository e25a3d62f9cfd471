#include "holdfast/distributed/internal/ballot_tree.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "holdfast/distributed/internal/meeting.h"

namespace holdfast::inline v1 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPolite = 10s;  // what a child that has connected may take to say who it is
constexpr std::size_t kWord = 16;
constexpr std::size_t kGreeting = 32;  // the word, and the rank
constexpr Duration kRetry = 20ms;
constexpr Duration kSlice = 200ms;  // between two looks at the alarm

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error(what + ": " + std::strerror(errno));
}

int timeout_until(SteadyTime end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::real().now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
}

// Closed at the end of its scope unless it is taken out.
class Socket {
 public:
  explicit Socket(int number) : number_(number) {}
  ~Socket() {
    if (number_ >= 0) ::close(number_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return number_; }
  int take() { return std::exchange(number_, -1); }
  void put(int number) { number_ = number; }

 private:
  int number_;
};

struct FreeAddress {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

std::unique_ptr<addrinfo, FreeAddress> numeric(const std::string& address, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(address.c_str(), port.c_str(), &hints, &list) != 0 || list == nullptr) {
    throw std::runtime_error("no address: " + address);
  }
  return std::unique_ptr<addrinfo, FreeAddress>(list);
}

void at_once(int socket) {
  const int yes = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

bool send_all(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return true;
}

bool receive_all(int socket, std::span<std::byte> bytes, SteadyTime end) {
  while (!bytes.empty()) {
    pollfd wait{socket, POLLIN, 0};
    if (::poll(&wait, 1, timeout_until(end)) == 0) return false;
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

std::string random_word() {
  std::random_device random;
  std::string word;
  while (word.size() < kWord) word += static_cast<char>('a' + random() % 26);
  return word;
}

int listen_at(const std::string& address, std::string& port) {
  const auto own = numeric(address, "0");
  // Whoever knocks may be gone by the time that he is let in: nobody waits in accept().
  Socket made(::socket(own->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage place{};
  socklen_t length = sizeof place;
  if (made.get() < 0 || ::bind(made.get(), own->ai_addr, own->ai_addrlen) != 0 ||
      ::listen(made.get(), 8) != 0 ||
      ::getsockname(made.get(), reinterpret_cast<sockaddr*>(&place), &length) != 0) {
    refuse("listening at " + address);
  }
  port = std::to_string(ntohs(place.ss_family == AF_INET6
                                  ? reinterpret_cast<const sockaddr_in6&>(place).sin6_port
                                  : reinterpret_cast<const sockaddr_in&>(place).sin_port));
  return made.take();
}

int connect_to(const std::string& address, const std::string& port, SteadyTime end, const StoreLine& line) {
  const auto target = numeric(address, port);
  while (true) {
    Socket made(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (made.get() < 0) refuse("socket");
    if (::connect(made.get(), target->ai_addr, target->ai_addrlen) != 0 && errno == EINPROGRESS) {
      pollfd wait{made.get(), POLLOUT, 0};
      while (::poll(&wait, 1, timeout_until(std::min(end, Clock::real().now() + kSlice))) <= 0) {
        if (Clock::real().now() >= end || line.hopeless()) break;
      }
    }
    int error = ETIMEDOUT;
    socklen_t size = sizeof error;
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(made.get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0) {
      at_once(made.get());
      ::fcntl(made.get(), F_SETFL, 0);  // what is sent is small: it never waits
      return made.take();
    }
    ::getsockopt(made.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (Clock::real().now() >= end || line.hopeless()) {
      errno = error != 0 ? error : ETIMEDOUT;
      refuse("no connection to " + address + ":" + port);
    }
    Clock::real().sleep_for(kRetry);
  }
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
  // Where and by which word, before this rank waits for its own parent.
  Socket listening(-1);
  const std::string word = random_word();
  if (!children_.empty()) {
    std::string port;
    listening.put(listen_at(address, port));
    line.set(key(rank), address + " " + port + " " + word);
  }
  if (rank > 0) {
    parent_.emplace().rank = (rank - 1) / 2;
    std::istringstream told(line.get(key(parent_->rank), limit));
    std::string where;
    std::string port;
    std::string greeting;
    told >> where >> port >> greeting;
    parent_->socket = connect_to(where, port, end, line);
    greeting += std::to_string(rank);
    greeting.resize(kGreeting, ' ');
    if (!send_all(parent_->socket, std::as_bytes(std::span(greeting)))) refuse("greeting " + where);
  }
  if (!children_.empty()) let_in(listening.get(), word, end, line);
}

// Whoever does not know the word is none of ours.
void BallotTree::let_in(int listening, const std::string& word, SteadyTime end, const StoreLine& line) {
  std::vector<int> missing;
  for (const Neighbour& child : children_) missing.push_back(child.rank);
  while (!missing.empty()) {
    pollfd wait{listening, POLLIN, 0};
    if (::poll(&wait, 1, timeout_until(std::min(end, Clock::real().now() + kSlice))) <= 0) {
      if (Clock::real().now() < end && !line.hopeless()) continue;
      throw std::runtime_error(ranks_in_words(missing) + " did not come to exchange ballots");
    }
    Socket came(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    std::string greeting(kGreeting, ' ');
    const SteadyTime soon = std::min(end, Clock::real().now() + kPolite);
    if (came.get() < 0 || !receive_all(came.get(), std::as_writable_bytes(std::span(greeting)), soon))
      continue;
    if (!greeting.starts_with(word)) continue;
    const int rank = std::atoi(greeting.c_str() + word.size());
    for (Neighbour& child : children_) {
      if (child.rank != rank || child.socket >= 0) continue;
      at_once(came.get());
      child.socket = came.take();
      std::erase(missing, rank);
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
  if (children_.empty()) {  // nobody else reads: here
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

// Requires the lock. Once this rank's and its children's ballots are there, their maximum goes on.
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

// To the children first: this rank may leave as soon as it knows.
void BallotTree::come_down(const Ballot& largest) {
  for (Neighbour& child : children_) send(child, largest);
  largest_ = largest;
  came_.notify_all();
}

// Requires the lock. What has arrived; true when it was a whole ballot, and was acted on.
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

// One lost, all lost: the others are to hear of it now. So the neighbour need not be the rank that is lost.
void BallotTree::lose(const std::string& how) {
  if (broken_.empty()) broken_ = "a connection for ballots: " + how;
  shut();
  came_.notify_all();
}

void BallotTree::throw_broken() const { C10_THROW_ERROR(DistBackendError, broken_); }

}  // namespace holdfast::inline v1
