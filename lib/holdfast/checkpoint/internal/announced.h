// All announced ends and stops: those of this process's own sources (Monitor), and those of other ranks, from
// their votes. The planner uses the earliest end, whichever rank heard of it.
//
// Errors: standing() and reason() throw std::bad_alloc. Threads: others_end() and others_stop() the training
// thread; other methods any.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/mutex.h"
#include "holdfast/interruption/monitor.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Announced {
 public:
  // `monitor` outlives this object.
  explicit Announced(Monitor& monitor) : monitor_(monitor) {}

  // The end of another rank's machine, with `deadline` and `seen`; nullopt: withdrawn. An earlier end than
  // the known one counts as the same notice.
  void others_end(std::optional<Notice> end);
  // nullopt: none is announced, or the machine has outlived it.
  std::optional<SteadyTime> others_end() const;
  // Another rank's machine will hibernate; nullopt: it will not.
  void others_sleep(std::optional<Notice> sleep);
  bool others_sleep() const;
  // Another rank was told to stop at `seen`.
  void others_stop(Notice stop);

  // As the methods of Monitor, over all of these. An end that passed before a stop does not count.
  bool stop_requested() const noexcept;
  std::optional<Notice> standing() const;
  std::optional<SteadyTime> deadline() const noexcept;
  std::optional<SteadyTime> named_deadline() const noexcept;
  std::optional<SteadyTime> earliest(const Monitor::Which& which) const noexcept;
  // The earliest named deadline that is still ahead: it alone forbids a save.
  std::optional<SteadyTime> named_ahead(SteadyTime now) const noexcept {
    return earliest({.named = true, .after = now});
  }
  std::optional<Duration> time_left(SteadyTime now) const noexcept;
  void dismiss(SteadyTime until, bool woken = false);
  // Dismisses the ends that the machine has outlived, and logs that. Another one may stand behind them.
  void drop_outlived(SteadyTime now);
  std::string reason() const;

 private:
  std::optional<SteadyTime> earliest_of_others(const Monitor::Which& which) const noexcept;

  Monitor& monitor_;
  mutable Mutex mutex_;
  std::optional<Notice> end_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<Notice> sleep_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<Notice> stop_ HOLDFAST_GUARDED_BY(mutex_);
};

}}}  // namespace holdfast::v0_2::internal
