// A c10d::Store as a RankStore: the TCPStore of rank 0 or of torchrun's agent, and the HashStore of a world
// of one. wait() polls, because a wait of c10d's holds up all other calls of its connection, and writes two
// warnings to standard error if it ends at its limit. No call is made over a connection that has failed: c10d
// would print a stack trace for each.
//
// Errors: as RankStore; another() as TCPStore's constructor. Threads: any.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

class C10dStore final : public RankStore {
 public:
  // `store` is used for nothing else. `world_size`: more ranks poll less often.
  C10dStore(c10::intrusive_ptr<c10d::Store> store, int world_size)
      : store_(std::move(store)), world_size_(world_size) {}

  // Another connection to the same store.
  c10::intrusive_ptr<c10d::Store> another() const { return store_->clone(); }

  void set(const std::string& key, const std::string& value) override;
  void append(const std::string& key, const std::string& text) override;
  std::vector<std::string> get(const std::vector<std::string>& keys) override;
  std::optional<std::string> peek(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  void erase(const std::string& key) override;
  std::optional<std::string> wait(const std::string& key, Duration limit,
                                  const std::function<bool()>& give_up) override;
  std::string await(const std::string& key) override;

 private:
  template <class Work>
  auto call(const Work& work);

  const c10::intrusive_ptr<c10d::Store> store_;
  const int world_size_;
  Mutex mutex_;  // of the connection
  bool closed_ HOLDFAST_GUARDED_BY(mutex_) = false;
};

}}  // namespace holdfast::v0_2
