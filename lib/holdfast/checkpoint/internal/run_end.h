// The end of a run: its outcome as exit code, reason and the last lines of ledger and run state.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/internal/final_writes.h"
#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/run_driver.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RunEnd {
 public:
  RunEnd(Run& run, RunDriver& driver, Heartbeat& heartbeat)
      : run_(run), driver_(driver), heartbeat_(heartbeat), writes_(run, driver) {}

  // For a process that commits: as the core has ended the run.
  struct Circumstances {
    SteadyTime began{};  // when finish() was called
    std::string reason;  // why the run stops; empty: it ended by itself
    std::string torn;    // why memory holds no step boundary, if it holds none
  };
  void finish(const run::Exit& exit, Circumstances at) noexcept;
  // The run cannot go on. A staged save is still written, if a deadline leaves time.
  void break_off(const Error& error) noexcept;
  // Another rank's process says how the run ended.
  void adopt_outcome(int code, std::string reason) noexcept;
  // Records that a thread hangs in the disk and is left behind.
  void leave_thread_behind() { writes_.leave_thread_behind(); }
  // Ends the thread of tell(), however long the disk takes.
  void wait_for_thread() noexcept { writes_.wait_for_thread(); }

  bool over() const { return over_; }
  int code() const { return code_; }
  const std::string& reason() const { return reason_; }
  // A thread still hangs in the disk.
  bool gave_up() const { return writes_.gave_up(); }

  // Writes ledger and run state. False: a newer attempt exists; reason() names it.
  bool tell(RunPhase how, std::string_view reason, int code) noexcept;
  // The Checkpointer is destroyed without finish().
  void say_unfinished() const noexcept;

 private:
  RunPhase describe(const run::Exit& exit, const std::string& torn) noexcept;
  void stop_writer() noexcept;
  void close() noexcept;
  void add_to_reason(const std::string& text) noexcept;

  Run& run_;
  RunDriver& driver_;
  Heartbeat& heartbeat_;
  FinalWrites writes_;
  bool over_ = false;
  int code_ = 0;
  std::string reason_;
};

}}}  // namespace holdfast::v0_2::internal
