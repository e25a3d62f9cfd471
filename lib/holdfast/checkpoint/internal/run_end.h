// The end of a run: the last save, and its outcome as exit code, reason and the last lines of ledger and run
// state.
//
// Errors: finish() passes on std::bad_alloc. Threads: the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "holdfast/checkpoint/internal/boundary_saves.h"
#include "holdfast/checkpoint/internal/evaluation.h"
#include "holdfast/checkpoint/internal/final_writes.h"
#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/notice_listener.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/unsaved_limit.h"
#include "holdfast/checkpoint/internal/write_limit.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class RunEnd {
 public:
  RunEnd(Run& run, SavePartners& partners, NoticeListener& listener, const UnsavedLimit& unsaved,
         WriteLimit& limit, SaveFlow& saves, LateSave& late, Evaluation& evaluation,
         BoundarySaves& boundary_saves, Heartbeat& heartbeat)
      : run_(run),
        partners_(partners),
        listener_(listener),
        unsaved_(unsaved),
        limit_(limit),
        saves_(saves),
        late_(late),
        evaluation_(evaluation),
        boundary_saves_(boundary_saves),
        heartbeat_(heartbeat),
        writes_(run, listener, limit) {}

  // For a process that commits. `told_to_stop`: asks for stops that only others have heard, after a failure.
  void finish() { finish({}); }
  void finish(const std::function<std::string()>& told_to_stop);
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
  RunPhase judge(bool interrupted, bool told, bool in_time, const std::string& torn);
  bool commit_last_step();
  void close() noexcept;
  void add_to_reason(const std::string& text) noexcept;
  std::string reason_of_leaving_out() const noexcept;
  void say_figures() const noexcept;

  Run& run_;
  SavePartners& partners_;
  NoticeListener& listener_;
  const UnsavedLimit& unsaved_;
  WriteLimit& limit_;
  SaveFlow& saves_;
  LateSave& late_;
  Evaluation& evaluation_;
  BoundarySaves& boundary_saves_;
  Heartbeat& heartbeat_;
  FinalWrites writes_;
  bool over_ = false;
  bool left_out_ = false;  // there was no time to save the last step
  int code_ = 0;
  std::string reason_;
};

}}}  // namespace holdfast::v0_2::internal
