// Receives notices from the construction of a Checkpointer on: makes their sources, reports them to the
// ledger and the other ranks, and watches whether the training reacts (NoticeWatch).
//
// Errors: start() throws Error if no thread can be made, and what a source's constructor throws.
// Threads: heard() any; the others the training thread.
#pragma once

#include <string>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/interruption/notice_watch.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class OtherRanks;
class RunDriver;

class NoticeListener {
 public:
  NoticeListener(Run& run, RunDriver& driver, OtherRanks& others);

  // From here on signals are heard, even while resume() waits for a volume or reads a large state.
  void start();
  // Between these two the training must look at notices.
  void begin() noexcept { watch_.begin(); }
  void end() noexcept { watch_.end(); }
  // The run is over, and nobody acts on a stop signal any more: what the program does next must not hide it.
  void run_is_over() noexcept;
  void stop() noexcept;

  // The training looks at the notices now.
  void heard() noexcept { watch_.heard(); }
  // Wakes the watch: there may be work for RunDriver::look().
  void wake() noexcept { watch_.wake({}); }

 private:
  RiskCommand command_for(const Notice& notice) const;
  std::string pending_text() const;

  Run& run_;
  RunDriver& driver_;
  const bool leads_;
  NoticeWatch watch_;
};

}}}  // namespace holdfast::v0_2::internal
