// A run's store whose calls all have a time limit. Calls of c10d's TCPStore wait for its server without one,
// and rank 0 may hang: then all ranks would hang. Each call runs on a thread that is left behind if it does
// not return; then the line is dead. The limit is 45 s beyond what the call itself may wait: machines stall,
// and a wrong verdict costs the run.
//
// Keys have a prefix, so that several starts can share a store (torchrun's agent keeps one over restarts).
// Errors: SilentStore if the store does not answer in time, and in all later calls; StoppedWaiting. Threads:
// one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/export.h"
#include "holdfast/ranks/gathering.h"
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
  // From now on no call waits for a lost store, and no wait goes on if a rank is lost.
  void heed(std::shared_ptr<const Alarm> alarm) { alarm_ = std::move(alarm); }
  // True while the ranks meet: a signal that asks to stop ends every wait. Later false, because the last save
  // may need the store.
  void heed_stop(bool yes) { heeds_stop_ = yes; }
  void throw_if_told_to_stop() const;
  bool hopeless() const { return alarm_ && alarm_->rank; }  // a rank is lost
  void set(const std::string& key, const std::string& text);
  std::optional<std::string> peek(const std::string& key);
  // nullopt: the key is missing after `limit`, or when a rank is lost and loss_is_known is false.
  std::optional<std::string> wait(const std::string& key, Duration limit, bool loss_is_known = false);
  // As wait(). SilentStore if the key is missing.
  std::string get(const std::string& key, Duration limit);
  std::int64_t add(const std::string& key, std::int64_t value);
  void erase(const std::string& key);

  // Gathered texts (gathering.h), once for each rank and name.
  void bring(const std::string& name, int rank, int world_size, const std::string& text = "");
  RankTexts came(const std::string& name);
  // Waits as wait() until all ranks have brought theirs. Returns those that have not.
  std::vector<int> absent(const std::string& name, int world_size, Duration limit,
                          bool loss_is_known = false);
  // Of these ranks. Polls, so it is for one rank, not for all.
  std::vector<int> absent(const std::string& name, const std::vector<int>& ranks, Duration limit,
                          bool loss_is_known = false);
  void forget(const std::string& name);

  const std::shared_ptr<RankStore>& store() const { return store_; }
  const std::string& prefix() const { return prefix_; }

 private:
  template <class Work>
  auto call(Duration limit, Work work);
  std::function<bool()> give_up(bool loss_is_known) const;

  std::shared_ptr<RankStore> store_;
  std::string prefix_;
  Duration answer_;
  std::shared_ptr<const Alarm> alarm_;
  bool dead_ = false;
  bool heeds_stop_ = false;
};

}}  // namespace holdfast::v0_2
