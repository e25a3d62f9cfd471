#include "holdfast/ranks/store_server.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/ranks/keyed_hash.h"

namespace holdfast { inline namespace v1 {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kServerNonce = 16;
constexpr Duration kPoliteStranger = 10s;    // time until a client must prove itself
constexpr std::size_t kMostStrangers = 256;  // more than ranks that connect in one moment; those connect
                                             // again
constexpr int kMostAtOnce = 64;              // accepted before unproved clients are counted again
constexpr Duration kNoDescriptors = 100ms;

}  // namespace

StoreServer::StoreServer(Socket listening, std::string secret)
    : listening_(std::move(listening)),
      end_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      secret_(std::move(secret)) {
  if (end_.get() < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::thread([this] { work(); });
}

StoreServer::~StoreServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(end_.get(), &one, sizeof one);
  thread_.join();
}

void StoreServer::work() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  std::vector<pollfd> waits;
  while (true) {
    waits = {{end_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    bool strangers = false;
    for (const Client& client : clients_) {
      // Reads nothing from a client that does not read its answers.
      waits.push_back({client.socket.get(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
      strangers = strangers || !client.trusted;
    }
    if (::poll(waits.data(), waits.size(), strangers ? 1000 : -1) < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    auto wait = waits.begin() + 2;
    for (Client& client : clients_) {
      const short events = (wait++)->revents;
      if (events == 0) continue;
      try {
        if (!client.out.empty()) {
          write(client);
        } else {
          read(client);
        }
      } catch (const std::exception&) {  // malformed message, or no memory for it
        client.over = true;
      }
    }
    dismiss();
    if (waits[1].revents != 0) let_in();
  }
}

void StoreServer::let_in() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket came(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (came.get() < 0) {
      if (errno == EMFILE || errno == ENFILE) Clock::real().sleep_for(kNoDescriptors);
      return;
    }
    send_without_delay(came.get());
    try {
      Client client{
          .socket = std::move(came), .came = Clock::real().now(), .nonce = random_bytes(kServerNonce)};
      client.out = packed({Kind::hello, {client.nonce}});
      write(client);
      clients_.push_back(std::move(client));
    } catch (const std::exception&) {  // the client connects again
    }
  }
}

// Removes unproved clients that took too long, the oldest of too many, and connections that have ended.
void StoreServer::dismiss() {
  const SteadyTime now = Clock::real().now();
  const auto strangers = static_cast<std::size_t>(
      std::count_if(clients_.begin(), clients_.end(), [](const Client& client) { return !client.trusted; }));
  std::size_t too_many = strangers > kMostStrangers ? strangers - kMostStrangers : 0;
  for (Client& client : clients_) {
    if (!client.over || client.will.empty()) continue;
    values_[client.will[0]] = client.will[1];
    client.will.clear();
  }
  clients_.remove_if([&](const Client& client) {
    if (client.over) return client.out.empty() || now - client.came > kPoliteStranger;
    if (client.trusted) return false;
    if (too_many > 0) {
      --too_many;
      return true;
    }
    return now - client.came > kPoliteStranger;
  });
}

void StoreServer::read(Client& client) {
  std::array<char, 65536> bytes{};
  const ssize_t got = ::recv(client.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    client.over = true;
    return;
  }
  client.in.append(bytes.data(), static_cast<std::size_t>(got));
  while (!client.over) {
    const auto message = take_message(client.in, client.trusted ? kLongestMessage : kLongestGreeting);
    if (!message) break;
    if (client.trusted && message->kind == Kind::will) {
      if (message->words.size() != 2 && !message->words.empty()) throw std::runtime_error("no request");
      client.will = message->words;
      client.out += packed({Kind::done, {}});
    } else if (client.trusted) {
      client.out += packed(answer(*message));
    } else {
      greet(client, *message);
    }
  }
  write(client);
}

void StoreServer::greet(Client& client, const Message& proof) {
  if (proof.kind != Kind::proof || proof.words.size() != 2) throw std::runtime_error("no proof");
  const std::string& nonce = proof.words[0];
  client.trusted = equal_in_constant_time(proof.words[1], proof_of_client(secret_, client.nonce, nonce));
  if (client.trusted) {
    client.out += packed({Kind::welcome, {proof_of_server(secret_, client.nonce, nonce)}});
  } else {
    client.out += packed({Kind::refused, {}});
    client.over = true;
  }
}

Message StoreServer::answer(const Message& request) {
  const auto& words = request.words;
  const auto is_there = [&](const std::string& key) { return values_.contains(key); };
  const auto needs = [&](bool met) {
    if (!met) throw std::runtime_error("no request");
  };
  switch (request.kind) {
    case Kind::set:
      needs(words.size() % 2 == 0);
      for (std::size_t i = 0; i < words.size(); i += 2) values_[words[i]] = words[i + 1];
      return {Kind::done, {}};
    case Kind::get: {
      Message values{Kind::done, {}};
      for (const std::string& key : words) {
        if (!is_there(key)) return {Kind::failed, {"no such key"}};
        values.words.push_back(values_[key]);
      }
      return values;
    }
    case Kind::add: {
      needs(words.size() == 2);
      std::string& value = values_[words[0]];
      const auto before = value.empty() ? 0 : parse_int(value);
      const auto more = parse_int(words[1]);
      if (!before || !more) return {Kind::failed, {"no number"}};
      value = std::to_string(*before + *more);
      return {Kind::done, {value}};
    }
    case Kind::append:
      needs(words.size() == 2);
      values_[words[0]] += words[1];
      return {Kind::done, {}};
    case Kind::compare_set: {
      needs(words.size() == 3);
      const auto found = values_.find(words[0]);
      const bool equal = found == values_.end() ? words[1].empty() : found->second == words[1];
      if (equal) return {Kind::done, {values_[words[0]] = words[2]}};
      return {Kind::done, {found == values_.end() ? words[1] : found->second}};
    }
    case Kind::erase:
      needs(words.size() == 1);
      return {Kind::done, {values_.erase(words[0]) > 0 ? "1" : "0"}};
    case Kind::check:
      return {Kind::done, {std::all_of(words.begin(), words.end(), is_there) ? "1" : "0"}};
    case Kind::count:
      return {Kind::done, {std::to_string(values_.size())}};
    default:
      throw std::runtime_error("no request");
  }
}

void StoreServer::write(Client& client) {
  while (!client.out.empty()) {
    const ssize_t sent =
        ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent <= 0) {
      client.over = true;
      client.out.clear();
      return;
    }
    client.out.erase(0, static_cast<std::size_t>(sent));
  }
}

}}  // namespace holdfast::v1
