// A connection to a run's store (store_server.h) as a c10d::Store, so Gloo and NCCL can use it too.
//
// Errors: OtherSecret; c10::DistNetworkError if the connection is lost (final) or no answer comes within the
// timeout; c10::DistStoreError if a key does not come within it. Threads: any, one call at a time.
#pragma once

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "holdfast/ranks/sockets.h"
#include "holdfast/ranks/store_messages.h"
#include "holdfast/ranks/store_server.h"

namespace holdfast { inline namespace v1 {

// The server at that address does not know this run's secret.
class OtherSecret : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class StoreClient final : public c10d::Store {
 public:
  struct Place {
    std::string host;
    std::uint16_t port = 0;
    std::string secret;
  };

  // Retries until `limit` has passed. Keeps `server` alive as long as this object.
  StoreClient(Place place, Duration limit, std::shared_ptr<StoreServer> server = nullptr);

  using Store::compareSet;
  using Store::set;
  c10::intrusive_ptr<Store> clone();  // NOLINT: overrides from LibTorch 2.8 on
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
  // The server sets that key when this connection ends for any reason, unless the will is withdrawn before.
  void make_will(const std::string& key, const std::string& value);
  void withdraw_will();
  void append(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::vector<std::uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<std::uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  void greet(SteadyTime end);
  Message receive(SteadyTime end);
  std::vector<std::string> call(Kind kind, std::vector<std::string> words);

  const Place place_;
  const Duration limit_;
  const std::shared_ptr<StoreServer> server_;
  std::mutex mutex_;
  Socket socket_;
  std::string in_;
};

}}  // namespace holdfast::v1
