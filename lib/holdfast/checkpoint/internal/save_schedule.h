// Decides when the next save begins: by the policy's triggers, or on request.
//
// Errors: the constructor throws UsageError for invalid triggers. Threads: the training thread, except
// next().
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/base/mutex.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/planning/save_policy.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class SaveSchedule {
 public:
  explicit SaveSchedule(Run& run) : run_(run), policy_(run.options.every, run.clock.now(), 0) {}

  // The loop begins at the step that was loaded.
  void begin();
  // The lives of earlier attempts' machines, for an automatic interval.
  void learn_lives() noexcept;

  // A save was requested and is not staged yet.
  bool wanted() const { return wanted_; }
  void want(bool so = true) { wanted_ = so; }
  // Takes the requests of notices. A risk also shortens the interval.
  void take_requests();

  // When the next save falls due by itself, for people. Any thread; as of the last save.
  struct Next {
    std::optional<SteadyTime> at = {};
    std::optional<std::int64_t> step = {};
    std::optional<Duration> interval = {};  // SavePolicy::interval()
  };
  Next next() const HOLDFAST_EXCLUDES(mutex_);

  bool due(SteadyTime now, std::int64_t step) const { return policy_.due(now, step); }
  std::optional<std::int64_t> next_due_step(SteadyTime now) const { return policy_.next_due_step(now); }
  std::optional<SteadyTime> next_due_time(SteadyTime now) const { return policy_.next_due_time(now); }
  // A save has begun or was not possible: the next one falls due from here.
  void saved(SteadyTime now, std::int64_t step);

  // Automatic interval: chooses it anew by the measured costs of saves. False: nothing new is known.
  bool choose_interval();

 private:
  Run& run_;
  SavePolicy policy_;
  bool wanted_ = false;
  std::int64_t measured_ = 0;  // saves that the policy knows
  void publish() noexcept HOLDFAST_EXCLUDES(mutex_);
  mutable Mutex mutex_;
  Next next_ HOLDFAST_GUARDED_BY(mutex_);
};

}}}  // namespace holdfast::v0_2::internal
