#include "holdfast/distributed/internal/foreign_store.h"

#include <c10/util/Exception.h>

namespace holdfast { inline namespace v0_2 {
namespace {

using Bytes = std::vector<std::uint8_t>;

auto as_ours(const auto& work) {
  try {
    return work();
  } catch (const c10::DistNetworkError& error) {
    // One kind of exception for all stores, so that callers need not know c10d's.
    throw StoreClosed(error.what_without_backtrace());
  }
}

}  // namespace

void ForeignStore::set(const std::string& key, const std::string& value) {
  as_ours([&] { store_->set(key, Bytes(value.begin(), value.end())); });
}

void ForeignStore::set_all(const std::vector<std::string>& keys, const std::string& value) {
  // c10d's stores need not have multiSet(). Without it each key costs a message.
  if (!store_->hasExtendedApi()) return RankStore::set_all(keys, value);
  as_ours(
      [&] { store_->multiSet(keys, std::vector<Bytes>(keys.size(), Bytes(value.begin(), value.end()))); });
}

std::vector<std::string> ForeignStore::get(const std::vector<std::string>& keys) {
  return as_ours([&] {
    std::vector<std::string> values;
    if (keys.size() > 1 && store_->hasExtendedApi()) {
      for (const Bytes& bytes : store_->multiGet(keys)) values.emplace_back(bytes.begin(), bytes.end());
    } else {
      for (const std::string& key : keys) values.push_back(store_->get_to_str(key));
    }
    return values;
  });
}

std::int64_t ForeignStore::add(const std::string& key, std::int64_t value) {
  return as_ours([&] { return store_->add(key, value); });
}

void ForeignStore::erase(const std::string& key) {
  as_ours([&] { store_->deleteKey(key); });
}

bool ForeignStore::check(const std::vector<std::string>& keys) {
  return as_ours([&] { return store_->check(keys); });
}

}}  // namespace holdfast::v0_2
