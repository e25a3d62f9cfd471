// The interface to a run's store: keys and values that all ranks share. It is what c10d's TCPStore can do
// (distributed/internal/c10d_store.h); tests have one in memory.
//
// Errors: StoreClosed, which is final; StoreFailed: the store refused one request. Threads: any; a thread in
// wait() lets others pass.
#pragma once

#include <cstddef>
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

// How long to wait at most between two questions about a key, if so many ranks ask: a question costs rank 0's
// store about 15 us.
inline Duration longest_pause(std::size_t ranks) {
  return std::chrono::milliseconds(50) + ranks * std::chrono::microseconds(250);
}

class HOLDFAST_EXPORT RankStore {
 public:
  virtual ~RankStore() = default;

  // set() and append() need not wait until the store has the text. Later calls of this object come behind it.
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Adds to the end of a text (missing: empty).
  virtual void append(const std::string& key, const std::string& text) = 0;
  // The values of all keys. Requires that they are there.
  virtual std::vector<std::string> get(const std::vector<std::string>& keys) = 0;
  // nullopt if the key is missing.
  virtual std::optional<std::string> peek(const std::string& key) = 0;
  // Adds to a number (missing: 0) and returns the sum.
  virtual std::int64_t add(const std::string& key, std::int64_t value) = 0;
  virtual void erase(const std::string& key) = 0;
  // Waits until the key is there, at most `limit`, or until give_up() returns true (asked at least once a
  // second). nullopt: it is still missing.
  virtual std::optional<std::string> wait(const std::string& key, Duration limit,
                                          const std::function<bool()>& give_up) = 0;
  // Waits until the key is there, however long, and holds up all other calls of this object. The answer comes
  // at once, where that of wait() may come later.
  virtual std::string await(const std::string& key) = 0;
};

}}  // namespace holdfast::v0_2
