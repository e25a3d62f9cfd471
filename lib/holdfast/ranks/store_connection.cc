#include "holdfast/ranks/store_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "holdfast/base/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/ranks/keyed_hash.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Bytes; random ones, so that no proof of an earlier connection serves again.
constexpr std::size_t kClientNonce = 16;
constexpr Duration kAgain = 50ms;
// How soon a wait sees that it must end, or that another thread wants the connection.
constexpr Duration kAskWhetherToGiveUp = 10ms;
constexpr Duration kLetPass = 1ms;

std::vector<std::string> expect_words(std::size_t count, std::vector<std::string> words) {
  if (words.size() != count) throw StoreFailed("the store: an answer of another length");
  return words;
}

}  // namespace

// The lock, and while it is waited for a notice to the thread that has it.
struct HOLDFAST_SCOPED_CAPABILITY StoreConnection::Turn {
  explicit Turn(StoreConnection& connection) HOLDFAST_ACQUIRE(connection.mutex_) : mutex(connection.mutex_) {
    // Counted before the lock, so that the thread that holds it in a long wait sees that others want it.
    ++connection.callers_;
    mutex.lock();
    --connection.callers_;
  }
  ~Turn() HOLDFAST_RELEASE() { mutex.unlock(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  Mutex& mutex;
};

StoreConnection::StoreConnection(Place place, Duration limit, std::shared_ptr<StoreServer> server)
    : place_(std::move(place)), limit_(limit), server_(std::move(server)) {
  const MutexLock lock(mutex_);
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    socket_ = connect_to(place_.host, place_.port, end, [] { return false; });
    try {
      greet(end);
      return;
    } catch (const StoreClosed&) {  // too many clients came at once
      if (Clock::real().now() >= end) throw;
      // The rest of the first connection's bytes must not be read as the second one's.
      in_.clear();
      closed_ = false;
      std::this_thread::sleep_for(kAgain);
    }
  }
}

std::unique_ptr<StoreConnection> StoreConnection::again() const {
  return std::make_unique<StoreConnection>(place_, limit_, server_);
}

void StoreConnection::greet(SteadyTime end) {
  const auto next = [&]() HOLDFAST_REQUIRES(mutex_) {
    auto message = receive(end, kLongestGreeting);
    if (!message) close("no answer");
    return std::move(*message);
  };
  const Message hello = next();
  if (hello.kind != Kind::hello || hello.words.size() != 1) throw OtherSecret("it is no store of a run");
  const std::string nonce = random_bytes(kClientNonce);
  send(Kind::proof, {nonce, proof_of_client(place_.secret, hello.words[0], nonce)});
  const Message verdict = next();
  // Both sides prove that they know the secret, without ever sending it.
  if (verdict.kind != Kind::welcome || verdict.words.size() != 1 ||
      !equal_in_constant_time(verdict.words[0], proof_of_server(place_.secret, hello.words[0], nonce))) {
    throw OtherSecret("it has another secret");
  }
}

void StoreConnection::close(const std::string& why) {
  closed_ = true;
  shut();
  throw StoreClosed(why);
}

// Not close(): other threads may still use the number of this descriptor.
void StoreConnection::shut() noexcept { ::shutdown(socket_.get(), SHUT_RDWR); }

void StoreConnection::send(Kind kind, std::vector<std::string> words) {
  const std::string request = packed({kind, std::move(words)});
  if (closed_ || !send_all(socket_.get(), std::as_bytes(std::span(request)))) {
    close("the store's connection is closed");
  }
}

std::optional<Message> StoreConnection::receive(SteadyTime end, std::size_t longest) {
  while (true) {
    try {
      if (auto message = take_message(in_, longest)) return message;
    } catch (const std::runtime_error& error) {
      // Nobody knows where the next message begins, so nothing more is read.
      closed_ = true;
      throw OtherSecret(error.what());
    }
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, timeout_until(end)) == 0) return std::nullopt;
    std::array<char, 65536> bytes;
    // MSG_DONTWAIT: poll() may report bytes that are not there after all (select(2), under BUGS).
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      close("the store's connection: " + std::string(got == 0 ? "closed" : std::strerror(errno)));
    }
    in_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

std::optional<std::vector<std::string>> StoreConnection::answer(SteadyTime end) {
  auto message = receive(end, kLongestMessage);
  if (!message) return std::nullopt;
  if (message->kind == Kind::done) return std::move(message->words);
  if (message->kind == Kind::failed && !message->words.empty()) {
    throw StoreFailed("the store: " + message->words.front());
  }
  close("the store sent a malformed answer");
}

std::vector<std::string> StoreConnection::call(Kind kind, std::vector<std::string> words) {
  const Turn turn(*this);
  send(kind, std::move(words));
  if (auto words_back = answer(Clock::real().now() + limit_)) return std::move(*words_back);
  close("no answer from the store");  // a late one would be taken for the next one's
}

void StoreConnection::begin(Kind kind, std::vector<std::string> words) {
  const Turn turn(*this);
  send(kind, std::move(words));
}

std::optional<std::vector<std::string>> StoreConnection::finish(Duration limit) {
  const Turn turn(*this);
  if (closed_) close("the store's connection is closed");
  return answer(Clock::real().now() + limit);
}

void StoreConnection::set(const std::string& key, const std::string& value) { call(Kind::set, {key, value}); }

void StoreConnection::note(const std::string& key, const std::string& value) {
  const Turn turn(*this);
  send(Kind::note, {key, value});
}

void StoreConnection::set_all(const std::vector<std::string>& keys, const std::string& value) {
  std::vector<std::string> words;
  words.reserve(2 * keys.size());
  for (const std::string& key : keys) {
    words.push_back(key);
    words.push_back(value);
  }
  call(Kind::set, std::move(words));
}

std::vector<std::string> StoreConnection::get(const std::vector<std::string>& keys) {
  return expect_words(keys.size(), call(Kind::get, keys));
}

std::int64_t StoreConnection::add(const std::string& key, std::int64_t value) {
  const auto sum = parse_int(expect_words(1, call(Kind::add, {key, std::to_string(value)})).front());
  if (!sum) throw StoreFailed("the store: a sum that is no number");
  return *sum;
}

void StoreConnection::erase(const std::string& key) { call(Kind::erase, {key}); }

bool StoreConnection::check(const std::vector<std::string>& keys) {
  return expect_words(1, call(Kind::check, keys)).front() == "1";
}

std::vector<std::string> StoreConnection::missing(const std::vector<std::string>& keys, Duration limit,
                                                  const std::function<bool()>& give_up) {
  const SteadyTime end = Clock::real().now() + limit;
  for (Duration left = limit;; left = std::max<Duration>(end - Clock::real().now(), 0ms)) {
    if (auto missed = wait_once(keys, left, give_up)) return std::move(*missed);
    // Lets the other callers have the lock before the wait begins again.
    while (callers_ > 0) std::this_thread::sleep_for(kLetPass);
  }
}

std::optional<std::vector<std::string>> StoreConnection::wait_once(const std::vector<std::string>& keys,
                                                                   Duration limit,
                                                                   const std::function<bool()>& give_up) {
  std::vector<std::string> words;
  words.reserve(keys.size() + 1);
  words.push_back(std::to_string(std::chrono::ceil<std::chrono::milliseconds>(limit).count()));
  words.insert(words.end(), keys.begin(), keys.end());
  const Turn turn(*this);
  send(Kind::await, std::move(words));
  // The server answers at its limit; this side allows for the way as well.
  SteadyTime end = Clock::real().now() + limit + limit_;
  bool cut_short = false;
  for (bool asked = false;;) {
    const SteadyTime now = Clock::real().now();
    if (auto missed = answer(std::min(end, now + kAskWhetherToGiveUp))) {
      // Only cut short for another caller: nullopt makes missing() wait on.
      if (cut_short && !missed->empty()) return std::nullopt;
      return missed;
    }
    if (now >= end) close("no answer from the store");
    if (asked) continue;
    const bool over = give_up();
    cut_short = !over && callers_ > 0;
    if (!over && !cut_short) continue;
    asked = true;
    // Asks the server for an answer now, so that the lock is free soon.
    send(Kind::enough, {});
    end = now + limit_;
  }
}

std::optional<std::string> StoreConnection::swap(const std::string& key, const std::string& value,
                                                 const std::string& read) {
  auto words = call(Kind::swap, {key, value, read});
  if (words.empty()) return std::nullopt;
  return std::move(words.front());
}

void StoreConnection::make_will(const std::string& key, const std::string& value) {
  call(Kind::will, {key, value});
}

void StoreConnection::withdraw_will() { call(Kind::will, {}); }

}}  // namespace holdfast::v0_2
