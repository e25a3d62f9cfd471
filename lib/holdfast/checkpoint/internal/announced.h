// What is announced: to this process by its own sources (Monitor), and to other ranks, as their votes tell.
// The planner goes by the earliest end, whoever heard of it.
//
// Errors: standing() and reason() throw std::bad_alloc. Threads: others_end() and others_stop() the training
// thread; the others any.
#pragma once

#include <optional>
#include <string>

#include "holdfast/base/mutex.h"
#include "holdfast/interruption/monitor.h"

namespace holdfast { inline namespace v1 { namespace internal {

class Announced {
 public:
  // It outlives this.
  explicit Announced(Monitor& monitor) : monitor_(monitor) {}

  // The end of another rank's machine, with `deadline` and `seen`; nullopt: it is announced no more. One that
  // is earlier than what was known is the same notice.
  void others_end(std::optional<Notice> end);
  // Nullopt: none is announced, or that machine lives on.
  std::optional<SteadyTime> others_end() const;
  // Another rank was told to stop at `seen`.
  void others_stop(Notice stop);

  // As the Monitor's, for all of these: among others, an end that had passed before any stop counts no more.
  bool stop_requested() const noexcept;
  std::optional<Notice> standing() const;
  std::optional<SteadyTime> deadline() const noexcept;
  std::optional<SteadyTime> named_deadline() const noexcept;
  std::optional<Duration> time_left(SteadyTime now) const noexcept;
  void dismiss(SteadyTime until, bool woken = false);
  std::string reason() const;

 private:
  std::optional<SteadyTime> earliest_of_others(bool named) const noexcept;

  Monitor& monitor_;
  mutable Mutex mutex_;
  std::optional<Notice> end_ HOLDFAST_GUARDED_BY(mutex_);
  std::optional<Notice> stop_ HOLDFAST_GUARDED_BY(mutex_);
};

}}}  // namespace holdfast::v1::internal
