#include "holdfast/distributed/internal/store_client.h"

#include <c10/util/Exception.h>

#include <utility>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string as_text(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<std::uint8_t> as_bytes(const std::string& text) { return {text.begin(), text.end()}; }

// With the exceptions that c10d expects of a store.
auto as_c10d(const auto& work) {
  try {
    return work();
  } catch (const StoreFailed& error) {
    C10_THROW_ERROR(DistStoreError, error.what());
  } catch (const StoreClosed& error) {
    C10_THROW_ERROR(DistNetworkError, error.what());
  }
}

}  // namespace

StoreClient::StoreClient(std::shared_ptr<StoreConnection> connection, Duration limit)
    : Store(std::chrono::ceil<std::chrono::milliseconds>(limit)), connection_(std::move(connection)) {}

std::vector<std::string> StoreClient::call(Kind kind, std::vector<std::string> words) {
  return as_c10d([&] { return connection_->call(kind, std::move(words)); });
}

// c10d clones a store for another thread. A connection takes one call at a time, so the clone gets its own.
c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return as_c10d([&] {
    return c10::make_intrusive<StoreClient>(std::shared_ptr<StoreConnection>(connection_->again()), timeout_);
  });
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
  // c10d's get() waits for the key; the store's own does not.
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
  // c10d knows no signs of life, so only the limit ends this wait.
  const auto missing = as_c10d([&] { return connection_->missing(keys, timeout, [] { return false; }); });
  if (!missing.empty()) {
    C10_THROW_ERROR(DistStoreError, "a key did not come to the store in time: " + missing.front());
  }
}

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

}}  // namespace holdfast::v0_2
