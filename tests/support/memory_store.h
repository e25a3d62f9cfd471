// A run's store in this process's memory, whose server can end.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { namespace test {

class MemoryStore final : public RankStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    require_open();
    values_[key] = value;
  }
  std::vector<std::string> get(const std::vector<std::string>& keys) override {
    std::vector<std::string> values;
    const std::lock_guard lock(mutex_);
    require_open();
    for (const std::string& key : keys) {
      const auto found = values_.find(key);
      if (found == values_.end()) throw StoreFailed("no such key");
      values.push_back(found->second);
    }
    return values;
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const std::lock_guard lock(mutex_);
    require_open();
    std::string& sum = values_[key];
    sum = std::to_string((sum.empty() ? 0 : parse_int(sum).value()) + value);
    return parse_int(sum).value();
  }
  void erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    values_.erase(key);
  }
  bool check(const std::vector<std::string>& keys) override {
    const std::lock_guard lock(mutex_);
    require_open();
    for (const std::string& key : keys) {
      if (!values_.contains(key)) return false;
    }
    return true;
  }
  std::string text(const std::string& key) { return get({key}).at(0); }
  void close(bool yes) {
    const std::lock_guard lock(mutex_);
    closed_ = yes;
  }

 private:
  void require_open() const {
    if (closed_) throw StoreClosed("closed");
  }

  std::mutex mutex_;
  std::map<std::string, std::string> values_;
  bool closed_ = false;
};

}}  // namespace holdfast::test
