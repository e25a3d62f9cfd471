// A run's store in this process's memory, whose server can end.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { namespace test {

class MemoryStore : public RankStore {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    require_open();
    values_[key] = value;
    changed_.notify_all();
  }
  void append(const std::string& key, const std::string& text) override {
    const std::lock_guard lock(mutex_);
    require_open();
    values_[key] += text;
    changed_.notify_all();
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
  std::optional<std::string> peek(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    require_open();
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::int64_t add(const std::string& key, std::int64_t value) override {
    const std::lock_guard lock(mutex_);
    require_open();
    std::string& sum = values_[key];
    sum = std::to_string((sum.empty() ? 0 : parse_int(sum).value()) + value);
    changed_.notify_all();
    return parse_int(sum).value();
  }
  void erase(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    require_open();
    values_.erase(key);
  }
  std::optional<std::string> wait(const std::string& key, Duration limit,
                                  const std::function<bool()>& give_up) override {
    const SteadyTime end = Clock::real().now() + limit;
    std::unique_lock lock(mutex_);
    while (true) {
      require_open();
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
      const Duration left = end - Clock::real().now();
      if (left <= Duration::zero() || give_up()) return std::nullopt;
      changed_.wait_for(lock, std::min<Duration>(left, std::chrono::seconds(1)));
    }
  }
  std::string await(const std::string& key) override {
    while (true) {
      if (auto text = wait(key, std::chrono::hours(1), [] { return false; })) return *text;
    }
  }
  bool has(const std::string& key) { return peek(key).has_value(); }
  std::string text(const std::string& key) { return get({key}).at(0); }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }
  void close(bool yes) {
    const std::lock_guard lock(mutex_);
    closed_ = yes;
    changed_.notify_all();
  }

 private:
  void require_open() const {
    if (closed_) throw StoreClosed("closed");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  bool closed_ = false;
};

}}  // namespace holdfast::test
