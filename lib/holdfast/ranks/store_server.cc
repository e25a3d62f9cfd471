#include "holdfast/ranks/store_server.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "holdfast/base/block_signals.h"
#include "holdfast/base/random_bytes.h"
#include "holdfast/ranks/keyed_hash.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Bytes; random ones, so that no proof of an earlier connection serves again.
constexpr std::size_t kServerNonce = 16;
constexpr Duration kPoliteStranger = 10s;    // time until a client must prove itself
constexpr std::size_t kMostStrangers = 256;  // more than ranks of a small run that connect in one moment
constexpr int kMostAtOnce = 64;              // accepted before unproved clients are counted again
constexpr int kMostEvents = 256;
// A thousand ranks give signs of life all the time. Serving several at once saves most of the wake-ups.
constexpr std::size_t kManyMembers = 512;
constexpr int kFewEvents = 32;
constexpr Duration kGather = 20ms;
constexpr Duration kNoDescriptors = 100ms;

}  // namespace

StoreServer::StoreServer(Socket listening, std::string secret, int ranks)
    : listening_(std::move(listening)),
      end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      secret_(std::move(secret)),
      // All ranks of a large run may connect in one moment.
      most_strangers_(std::max(kMostStrangers, static_cast<std::size_t>(ranks))),
      table_([this](StoreTable::Client number, const Message& answer) {
        const auto found = by_number_.find(number);
        // The client may have left before its answer was ready.
        if (found != by_number_.end()) send(*found->second, answer);
      }) {
  for (Socket* const one : {&end_, &listening_}) {
    epoll_event event{.events = EPOLLIN, .data = {.ptr = one}};
    if (end_.get() < 0 || epoll_.get() < 0 ||
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, one->get(), &event) != 0) {
      throw std::system_error(errno, std::generic_category(), "epoll");
    }
  }
  const BlockSignals block;
  thread_ = std::thread([this] { work(); });
}

StoreServer::~StoreServer() {
  const std::uint64_t one = 1;
  // It cannot fail: nobody else writes to this eventfd, so its counter has room.
  [[maybe_unused]] const auto written = ::write(end_.get(), &one, sizeof one);
  thread_.join();
}

StoreTraffic StoreServer::traffic() const {
  StoreTraffic traffic{messages_in_, bytes_in_, bytes_out_};
  clockid_t clock{};
  timespec used{};
  if (pthread_getcpuclockid(thread_.native_handle(), &clock) == 0 && clock_gettime(clock, &used) == 0) {
    traffic.processor = std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  }
  return traffic;
}

void StoreServer::work() {
  std::array<epoll_event, kMostEvents> events{};
  while (true) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kMostEvents, time_left());
    if (count < 0 && errno != EINTR) return;
    bool come = false;
    for (int i = 0; i < count; ++i) {
      const auto& event = events[static_cast<std::size_t>(i)];
      if (event.data.ptr == &end_) return;
      if (event.data.ptr == &listening_) {
        come = true;
      } else {
        serve(*static_cast<Client*>(event.data.ptr), (event.events & EPOLLOUT) != 0);
      }
    }
    table_.expire(Clock::real().now());
    write_all();
    // After the whole batch: its other events hold pointers to clients that may be over.
    dismiss();
    if (come) let_in();
    if (members_.size() > kManyMembers && count < kFewEvents) Clock::real().sleep_for(kGather);
  }
}

// For epoll, in milliseconds.
int StoreServer::time_left() const {
  // Strangers that prove nothing must be dismissed in time, although they cause no event.
  const int strangers = strangers_.empty() ? -1 : 1000;
  const auto end = table_.next_end();
  if (!end) return strangers;
  const int left = timeout_until(*end);
  return strangers < 0 ? left : std::min(left, strangers);
}

void StoreServer::let_in() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket came(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (came.get() < 0) {
      // Without a pause, the waiting connection would wake this loop again at once.
      if (errno == EMFILE || errno == ENFILE) Clock::real().sleep_for(kNoDescriptors);
      break;
    }
    send_without_delay(came.get());
    try {
      strangers_.push_back(
          {.socket = std::move(came), .came = Clock::real().now(), .nonce = random_bytes(kServerNonce)});
    } catch (const std::exception&) {  // the client connects again
      continue;
    }
    Client& client = strangers_.back();
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &client}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, client.socket.get(), &event) != 0) {
      strangers_.pop_back();
      continue;
    }
    send(client, {Kind::hello, {client.nonce}});
  }
  write_all();
}

void StoreServer::serve(Client& client, bool writable) {
  if (client.over) return;
  try {
    // Clients that are blocked have nothing to read until their answers are out.
    if (writable || client.blocked) {
      write(client);
    } else {
      read(client);
    }
  } catch (const std::exception&) {  // malformed message, or no memory for it
    client.over = some_are_over_ = true;
  }
}

// Removes unproved clients that took too long, the oldest of too many, and connections that have ended.
void StoreServer::dismiss() {
  const SteadyTime now = Clock::real().now();
  // Again and again, because a write to those that stay may end some of them.
  while (std::exchange(some_are_over_, false)) {
    for (Clients* const clients : {&strangers_, &members_}) {
      for (auto next = clients->begin(); next != clients->end();) {
        const auto client = next++;
        if (client->over) remove(*clients, client);
      }
    }
    write_all();  // to those that waited for a will
  }
  while (strangers_.size() > most_strangers_) remove(strangers_, strangers_.begin());
  while (!strangers_.empty() && now - strangers_.front().came > kPoliteStranger) {
    remove(strangers_, strangers_.begin());
  }
}

void StoreServer::remove(Clients& from, Clients::iterator client) {
  std::erase(writing_, &*client);
  // Closing alone does neither while a forked child of this process holds the socket.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->socket.get(), nullptr);
  ::shutdown(client->socket.get(), SHUT_RDWR);
  if (client->trusted) {
    by_number_.erase(client->number);
    table_.leave(client->number);
  }
  from.erase(client);
}

void StoreServer::read(Client& client) {
  std::array<char, 65536> bytes;
  const ssize_t got = ::recv(client.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    client.over = some_are_over_ = true;
    client.out.clear();
    return;
  }
  bytes_in_ += static_cast<std::uint64_t>(got);
  client.in.append(bytes.data(), static_cast<std::size_t>(got));
  while (!client.over) {
    // Before the proof only a short message is accepted, so that strangers cannot fill the memory.
    auto message = take_message(client.in, client.trusted ? kLongestMessage : kLongestGreeting);
    if (!message) return;
    ++messages_in_;
    if (client.trusted) {
      table_.handle(client.number, std::move(*message), Clock::real().now());
    } else {
      greet(client, *message);
    }
  }
}

void StoreServer::greet(Client& client, const Message& proof) {
  if (proof.kind != Kind::proof || proof.words.size() != 2) throw std::runtime_error("no proof");
  const std::string& nonce = proof.words[0];
  if (!equal_in_constant_time(proof.words[1], proof_of_client(secret_, client.nonce, nonce))) {
    send(client, {Kind::refused, {}});
    // Over, but removed only after the answer was tried.
    client.over = some_are_over_ = true;
    return;
  }
  client.trusted = true;
  // Never used again, because an answer to a client that has left must find nobody.
  client.number = ++newest_;
  by_number_[client.number] = &client;
  const auto self =
      std::find_if(strangers_.begin(), strangers_.end(), [&](const Client& one) { return &one == &client; });
  // splice() moves no entry: epoll keeps its address.
  members_.splice(members_.end(), strangers_, self);
  send(client, {Kind::welcome, {proof_of_server(secret_, client.nonce, nonce)}});
}

void StoreServer::send(Client& client, const Message& message) {
  if (client.over) return;
  client.out += packed(message);
  if (!std::exchange(client.writes, true)) writing_.push_back(&client);
}

void StoreServer::write_all() {
  for (const auto writing = std::exchange(writing_, {}); Client* const client : writing) {
    client->writes = false;
    if (!client->blocked) write(*client);
  }
}

// A client that does not read its answers is not read from.
void StoreServer::await(Client& client, bool writable) {
  if (client.blocked == writable) return;
  client.blocked = writable;
  const std::uint32_t events = writable ? EPOLLOUT : EPOLLIN;
  epoll_event event{.events = events, .data = {.ptr = &client}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.socket.get(), &event);
}

void StoreServer::write(Client& client) {
  std::size_t done = 0;
  while (done < client.out.size()) {
    // MSG_NOSIGNAL: a rank that has died must not end this one by SIGPIPE.
    const ssize_t sent = ::send(client.socket.get(), client.out.data() + done, client.out.size() - done,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent <= 0) {
      client.over = some_are_over_ = true;
      client.out.clear();
      return;
    }
    done += static_cast<std::size_t>(sent);
    bytes_out_ += static_cast<std::uint64_t>(sent);
  }
  client.out.erase(0, done);
  await(client, !client.out.empty());
}

}}  // namespace holdfast::v0_2
