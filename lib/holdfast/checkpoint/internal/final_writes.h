// What goes to the disk at the end of a run after its last save: the last lines of the ledger, and how it
// ended. A volume whose server is gone never answers, so each wait ends when the announced end of the machine
// comes. The thread that hangs is then left behind.
//
//   if (writes.stop_writer()) writes.tell(state);
//
// Errors: tell() throws std::bad_alloc. Threads: the training thread.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <string>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class FinalWrites {
 public:
  FinalWrites(Run& run, RunDriver& driver) : run_(run), driver_(driver) {}

  // Ends the writer's thread, which may hang although nothing is in flight: it looks for newer attempts, and
  // writes the ledger. False: gave_up().
  bool stop_writer();
  // Writes ledger and run state, then deletes what the writer has left (leave_soon). Requires that no writer
  // uses the store. Returns the text of a newer attempt, if there is one; nullopt as well if it gives up.
  std::optional<std::string> tell(RunState end);

  void leave_thread_behind() { gave_up_ = true; }
  // A thread still hangs in the disk, and uses the run.
  bool gave_up() const { return gave_up_; }
  // Until tell() is done, however long the disk takes.
  void wait_for_thread() noexcept {
    if (told_.valid()) told_.wait();
  }

 private:
  // `done` waits at most as long as it is told. Its first call gets `at_least`, whatever the deadline.
  bool wait(const std::function<bool(Duration)>& done, Duration at_least, const char* what);

  Run& run_;
  RunDriver& driver_;
  bool gave_up_ = false;
  std::future<std::optional<std::string>> told_;
};

}}}  // namespace holdfast::v0_2::internal
