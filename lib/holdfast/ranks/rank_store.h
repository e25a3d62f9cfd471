// The interface to a run's store: keys and values that all ranks share.
//
// StoreConnection talks to Holdfast's own store in rank 0's process. Under torchrun the store is a
// c10d::Store (distributed/internal/foreign_store.h). Tests have one in memory.
//
// Errors: StoreClosed, which is final; StoreFailed: the store refused one request. Threads: as the
// implementation says.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// The connection has ended, or no answer came. Later calls fail too.
class HOLDFAST_EXPORT StoreClosed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HOLDFAST_EXPORT StoreFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HOLDFAST_EXPORT RankStore {
 public:
  virtual ~RankStore() = default;

  virtual void set(const std::string& key, const std::string& value) = 0;
  // As set(), but need not wait until the store has it.
  virtual void note(const std::string& key, const std::string& value) { set(key, value); }
  virtual void set_all(const std::vector<std::string>& keys, const std::string& value);
  // The values of all keys. StoreFailed if one is missing.
  virtual std::vector<std::string> get(const std::vector<std::string>& keys) = 0;
  // Adds to a number (missing: 0) and returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t value) = 0;
  virtual void erase(const std::string& key) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;  // all are there

  // Waits until all keys are there, at most `limit`, or until give_up() returns true (asked at least once a
  // second). Returns those that are missing then. This default polls.
  virtual std::vector<std::string> missing(const std::vector<std::string>& keys, Duration limit,
                                           const std::function<bool()>& give_up);
  // Sets `key` and returns the value of `read`; nullopt if that is missing. One message each way, if the
  // store can do that.
  virtual std::optional<std::string> swap(const std::string& key, const std::string& value,
                                          const std::string& read);
  // The store sets that key when this connection ends for any reason, unless the will is withdrawn before.
  // Not every store can do that.
  virtual void make_will(const std::string& /*key*/, const std::string& /*value*/) {}
  virtual void withdraw_will() {}
};

}}  // namespace holdfast::v0_2
