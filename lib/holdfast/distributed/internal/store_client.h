// A connection to a run's store (ranks/store_connection.h) as a c10d::Store, for Gloo and NCCL.
//
// Errors: OtherSecret; c10::DistNetworkError if the connection is lost (final) or no answer comes within the
// timeout; c10::DistStoreError if a key does not come within it. Threads: any, one call at a time.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "holdfast/ranks/store_connection.h"

namespace holdfast { inline namespace v0_2 {

class StoreClient final : public c10d::Store {
 public:
  StoreClient(std::shared_ptr<StoreConnection> connection, Duration limit);

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<Store> clone() override;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key, const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& desired) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  std::vector<std::string> call(Kind kind, std::vector<std::string> words);

  const std::shared_ptr<StoreConnection> connection_;
};

}}  // namespace holdfast::v0_2
