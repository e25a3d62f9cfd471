// A c10d::Store as a RankStore: torchrun's TCPStore, and the HashStore of a world of one. It polls where
// Holdfast's own store waits, and knows no wills.
//
// Errors: as RankStore. Threads: as the store's.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

class ForeignStore final : public RankStore {
 public:
  explicit ForeignStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  void set(const std::string& key, const std::string& value) override;
  void set_all(const std::vector<std::string>& keys, const std::string& value) override;
  std::vector<std::string> get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  void erase(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}}  // namespace holdfast::v0_2
