#include "holdfast/distributed/internal/c10d_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

using Bytes = std::vector<std::uint8_t>;

// What nobody writes.
constexpr const char* kNothing = "\x1anothing";
constexpr auto kVeryLong = std::chrono::hours(24);

Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

template <class Work>
auto C10dStore::call(const Work& work) {
  // c10d would let them pass one by one, too, those that wait while one fails included.
  const MutexLock lock(mutex_);
  if (closed_) throw StoreClosed("the connection to the store is closed");
  try {
    return work();
  } catch (const c10::DistNetworkError& error) {
    // Callers below this module do not know c10d's exceptions.
    closed_ = true;
    throw StoreClosed(error.what_without_backtrace());
  } catch (const c10::DistError& error) {
    throw StoreFailed(error.what_without_backtrace());
  }
}

void C10dStore::set(const std::string& key, const std::string& value) {
  call([&] { store_->set(key, bytes_of(value)); });
}

void C10dStore::append(const std::string& key, const std::string& text) {
  call([&] { store_->append(key, bytes_of(text)); });
}

std::vector<std::string> C10dStore::get(const std::vector<std::string>& keys) {
  return call([&] {
    std::vector<std::string> values;
    for (const Bytes& bytes : store_->multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
    return values;
  });
}

std::optional<std::string> C10dStore::peek(const std::string& key) {
  // c10d's get() waits, and asks twice. This compares with what is never there, so it only reads, and returns
  // the same if the key is missing.
  const Bytes nothing = bytes_of(kNothing);
  const Bytes value = call([&] { return store_->compareSet(key, nothing, nothing); });
  if (value == nothing) return std::nullopt;
  return std::string(value.begin(), value.end());
}

std::int64_t C10dStore::add(const std::string& key, std::int64_t value) {
  return call([&] { return store_->add(key, value); });
}

void C10dStore::erase(const std::string& key) {
  call([&] { store_->deleteKey(key); });
}

std::optional<std::string> C10dStore::wait(const std::string& key, Duration limit,
                                           const std::function<bool()>& give_up) {
  const Duration longest = longest_pause(static_cast<std::size_t>(world_size_));
  const SteadyTime end = Clock::real().now() + limit;
  for (Duration pause = 1ms + 200us * world_size_;; pause = std::min(2 * pause, longest)) {
    if (auto text = peek(key)) return text;
    const Duration left = end - Clock::real().now();
    if (left <= Duration::zero() || give_up()) return std::nullopt;
    std::this_thread::sleep_for(std::min(pause, left));
  }
}

std::string C10dStore::await(const std::string& key) {
  while (true) {
    try {
      call([&] { store_->wait({key}, kVeryLong); });
    } catch (const StoreFailed&) {  // not within that time
    }
    // A peek of another wakes this wait as well.
    if (auto text = peek(key)) return std::move(*text);
  }
}

}}  // namespace holdfast::v0_2
