// A c10d::Store in which every call has an end. A TCPStore's client waits without one for the server's
// answer, even to give up waiting; where rank 0 hangs, so would everybody. Each call runs on a thread of its
// own here, which is left behind when it does not come back; the line is dead from then on. "In time" is half
// a minute beyond what the call itself may wait: machines stall, and a mistake costs the run.
//
// Keys are prefixed, so that several starts can share a store (torchrun's agent keeps one over restarts).
// Errors: SilentStore when the store does not answer in time, or not any more.
// Threads: one at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/distributed/internal/pulse.h"

namespace holdfast::inline v1 {

class SilentStore : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What `work` returns or throws; SilentStore when it takes longer than `limit`, or `hopeless` is raised.
// `work` must own what it uses.
void within(Duration limit, std::function<void()> work, const std::atomic<bool>* hopeless = nullptr);

class StoreLine {
 public:
  StoreLine(c10::intrusive_ptr<c10d::Store> store, std::string prefix);

  // From now on a few seconds are in time: once a rank is lost, the store may be lost with it.
  void hurry();
  // From now on no call waits for a store that is lost, nor missing() where a rank is.
  void heed(std::shared_ptr<const Alarm> alarm) { alarm_ = std::move(alarm); }
  bool hopeless() const { return alarm_ && alarm_->rank; }  // a rank is lost
  void set(const std::string& key, const std::string& text);
  // Blocks until it is there, `limit` at most; SilentStore then.
  std::string get(const std::string& key, Duration limit);
  std::int64_t add(const std::string& key, std::int64_t value);
  void erase(const std::string& key);
  // Waits until all keys are there; those that are not when `limit` has passed, or a rank was lost unless
  // that is known.
  std::vector<std::string> missing(const std::vector<std::string>& keys, Duration limit,
                                   bool loss_is_known = false);

  const c10::intrusive_ptr<c10d::Store>& store() const { return store_; }
  const std::string& prefix() const { return prefix_; }

 private:
  void call(Duration limit, std::function<void()> work);

  c10::intrusive_ptr<c10d::Store> store_;
  std::string prefix_;
  Duration answer_;
  std::shared_ptr<const Alarm> alarm_;
  bool dead_ = false;
};

}  // namespace holdfast::inline v1
