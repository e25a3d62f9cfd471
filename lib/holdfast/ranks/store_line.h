// A run's store whose calls all have a time limit, whichever store it is. A RankStore may wait for its server
// without one, as torchrun's TCPStore does, and rank 0 may hang: then all ranks would hang. Each call runs on
// a thread that is left behind if it does not return; then the line is dead. The limit is 45 s beyond what
// the call itself may wait: machines stall, and a wrong verdict costs the run.
//
// Keys have a prefix, so that several starts can share a store (torchrun's agent keeps one over restarts).
// Errors: SilentStore if the store does not answer in time, and in all later calls; StoppedWaiting. Threads:
// one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/export.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT SilentStore : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A signal asked this process to stop while the ranks were meeting.
class HOLDFAST_EXPORT StoppedWaiting : public Error {
 public:
  StoppedWaiting();
};

// What ends a wait, besides its limit.
struct Heeds {
  const std::atomic<bool>* hopeless = nullptr;  // when true: SilentStore
  bool stop = false;                            // a signal that asks to stop: StoppedWaiting
};

// Returns or throws what `work` does. SilentStore if it takes longer than `limit`. `work` must own everything
// that it uses.
HOLDFAST_EXPORT void within(Duration limit, std::function<void()> work, Heeds heeds = {});

class HOLDFAST_EXPORT StoreLine {
 public:
  StoreLine(std::shared_ptr<RankStore> store, std::string prefix);
  // This line with a longer prefix.
  StoreLine below(const std::string& folder) const {
    StoreLine line = *this;
    line.prefix_ += folder + "/";
    return line;
  }

  // From now on each answer may take 5 s, not 45: when a rank is lost, the store may be lost with it.
  void shorten_limit();
  // From now on no call waits for a lost store, and missing() does not wait if a rank is lost.
  void heed(std::shared_ptr<const Alarm> alarm) { alarm_ = std::move(alarm); }
  // True while the ranks meet: a signal that asks to stop ends every wait. Later false, because the last save
  // may need the store.
  void heed_stop(bool yes) { heeds_stop_ = yes; }
  void throw_if_told_to_stop() const;
  bool hopeless() const { return alarm_ && alarm_->rank; }  // a rank is lost
  void set(const std::string& key, const std::string& text);
  // Blocks until the key is there, at most `limit`; then SilentStore.
  std::string get(const std::string& key, Duration limit);
  // The values of all keys. Requires that they are there.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  std::int64_t add(const std::string& key, std::int64_t value);
  void erase(const std::string& key);
  // The store sets that key when this connection ends, if it can (RankStore::make_will).
  void make_will(const std::string& key);
  // Waits until all keys are there. Returns those that are missing after `limit`, or when a rank is lost and
  // loss_is_known is false.
  std::vector<std::string> missing(const std::vector<std::string>& keys, Duration limit,
                                   bool loss_is_known = false);

  const std::shared_ptr<RankStore>& store() const { return store_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void call(Duration limit, std::function<void()> work);
  std::vector<std::string> full(const std::vector<std::string>& keys) const;

  std::shared_ptr<RankStore> store_;
  std::string prefix_;
  Duration answer_;
  std::shared_ptr<const Alarm> alarm_;
  bool dead_ = false;
  bool heeds_stop_ = false;
};

}}  // namespace holdfast::v0_2
