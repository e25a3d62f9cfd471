#include "holdfast/distributed/internal/store_client.h"

#include <c10/util/Exception.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "holdfast/base/text.h"
#include "holdfast/ranks/keyed_hash.h"

namespace holdfast { inline namespace v1 {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kClientNonce = 16;
constexpr Duration kFirstLook = 1ms;
constexpr Duration kBetweenLooksAtStore = 50ms;

std::string as_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<std::uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

StoreClient::StoreClient(Place place, Duration limit, std::shared_ptr<StoreServer> server)
    : Store(std::chrono::ceil<std::chrono::milliseconds>(limit)),
      place_(std::move(place)),
      limit_(limit),
      server_(std::move(server)) {
  const SteadyTime end = Clock::real().now() + limit;
  while (true) {
    socket_ = connect_to(place_.host, place_.port, end, [] { return false; });
    try {
      greet(end);
      return;
    } catch (const c10::DistNetworkError&) {  // closed: too many clients came at once
      if (Clock::real().now() >= end) throw;
      in_.clear();
      std::this_thread::sleep_for(kBetweenLooksAtStore);
    }
  }
}

void StoreClient::greet(SteadyTime end) {
  const Message hello = receive(end);
  if (hello.kind != Kind::hello || hello.words.size() != 1) throw OtherSecret("it is no store of a run");
  const std::string nonce = random_bytes(kClientNonce);
  const std::string proof =
      packed({Kind::proof, {nonce, proof_of_client(place_.secret, hello.words[0], nonce)}});
  if (!send_all(socket_.get(), std::as_bytes(std::span(proof)))) {
    C10_THROW_ERROR(DistNetworkError, "the store's connection was closed");
  }
  const Message verdict = receive(end);
  if (verdict.kind != Kind::welcome || verdict.words.size() != 1 ||
      !equal_in_constant_time(verdict.words[0], proof_of_server(place_.secret, hello.words[0], nonce))) {
    throw OtherSecret("it has another secret");
  }
}

Message StoreClient::receive(SteadyTime end) {
  while (true) {
    try {
      if (auto message = take_message(in_, kLongestMessage)) return std::move(*message);
    } catch (const std::runtime_error& error) {
      throw OtherSecret(error.what());
    }
    pollfd wait{socket_.get(), POLLIN, 0};
    if (::poll(&wait, 1, timeout_until(end)) == 0)
      C10_THROW_ERROR(DistNetworkError, "no answer from the store");
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) {
      const std::string how = got == 0 ? "closed" : std::strerror(errno);
      C10_THROW_ERROR(DistNetworkError, "the store's connection: " + how);
    }
    in_.append(bytes.data(), static_cast<std::size_t>(got));
  }
}

std::vector<std::string> StoreClient::call(Kind kind, std::vector<std::string> words) {
  const std::lock_guard lock(mutex_);
  const std::string request = packed({kind, std::move(words)});
  if (socket_.get() < 0 || !send_all(socket_.get(), std::as_bytes(std::span(request)))) {
    socket_ = Socket();
    C10_THROW_ERROR(DistNetworkError, "the store's connection is closed");
  }
  try {
    Message answer = receive(Clock::real().now() + timeout_);
    if (answer.kind == Kind::done) return std::move(answer.words);
    if (answer.kind == Kind::failed && !answer.words.empty()) {
      C10_THROW_ERROR(DistStoreError, "the store: " + answer.words.front());
    }
    C10_THROW_ERROR(DistNetworkError, "the store's answer is not one");
  } catch (const c10::DistNetworkError&) {
    socket_ = Socket();  // a late answer would be taken for the next one's
    throw;
  }
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(place_, limit_, server_);
}

void StoreClient::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  call(Kind::set, {key, as_text(value)});
}

std::vector<std::uint8_t> StoreClient::compareSet(const std::string& key,
                                                  const std::vector<std::uint8_t>& expected,
                                                  const std::vector<std::uint8_t>& desired) {
  return as_bytes(call(Kind::compare_set, {key, as_text(expected), as_text(desired)}).at(0));
}

std::vector<std::uint8_t> StoreClient::get(const std::string& key) {
  wait({key});
  return as_bytes(call(Kind::get, {key}).at(0));
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t value) {
  return parse_int(call(Kind::add, {key, std::to_string(value)}).at(0)).value_or(0);
}

bool StoreClient::deleteKey(const std::string& key) { return call(Kind::erase, {key}).at(0) == "1"; }

bool StoreClient::check(const std::vector<std::string>& keys) { return call(Kind::check, keys).at(0) == "1"; }

std::int64_t StoreClient::getNumKeys() { return parse_int(call(Kind::count, {}).at(0)).value_or(0); }

void StoreClient::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void StoreClient::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const SteadyTime end = Clock::real().now() + timeout;
  for (Duration pause = kFirstLook; !check(keys); pause = std::min(2 * pause, kBetweenLooksAtStore)) {
    if (Clock::real().now() >= end) {
      C10_THROW_ERROR(DistStoreError, "a key did not come to the store in time: " + keys.front());
    }
    std::this_thread::sleep_for(pause);
  }
}

void StoreClient::make_will(const std::string& key, const std::string& value) {
  call(Kind::will, {key, value});
}

void StoreClient::withdraw_will() { call(Kind::will, {}); }

void StoreClient::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  call(Kind::append, {key, as_text(value)});
}

std::vector<std::vector<std::uint8_t>> StoreClient::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  std::vector<std::vector<std::uint8_t>> values;
  for (const std::string& text : call(Kind::get, keys)) values.push_back(as_bytes(text));
  return values;
}

void StoreClient::multiSet(const std::vector<std::string>& keys,
                           const std::vector<std::vector<std::uint8_t>>& values) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    words.push_back(keys[i]);
    words.push_back(as_text(values.at(i)));
  }
  call(Kind::set, std::move(words));
}

}}  // namespace holdfast::v1
