// The end of a run: the last save, and what became of it, as exit code, reason and the last lines of ledger
// and run state.
//
// Errors: finish() passes on std::bad_alloc. Threads: the training thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "holdfast/checkpoint/internal/boundary_saves.h"
#include "holdfast/checkpoint/internal/evaluation.h"
#include "holdfast/checkpoint/internal/heartbeat.h"
#include "holdfast/checkpoint/internal/notice_listener.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/save_flow.h"
#include "holdfast/checkpoint/internal/write_limit.h"

namespace holdfast { inline namespace v1 { namespace internal {

class RunEnd {
 public:
  RunEnd(Run& run, SavePartners& partners, NoticeListener& listener, WriteLimit& limit, SaveFlow& saves,
         LateSave& late, Evaluation& evaluation, BoundarySaves& boundary_saves, Heartbeat& heartbeat)
      : run_(run),
        partners_(partners),
        listener_(listener),
        limit_(limit),
        saves_(saves),
        late_(late),
        evaluation_(evaluation),
        boundary_saves_(boundary_saves),
        heartbeat_(heartbeat) {}

  // Of a process that commits.
  void finish();
  // The run cannot go on. What is staged is still written, for as long as a deadline leaves.
  void break_off(const Error& error) noexcept;
  // Another rank's process says how the run ended.
  void hear(int code, std::string reason) noexcept;
  // A thread hangs in the disk and is left behind.
  void leave_thread_behind() { gave_up_ = true; }

  bool over() const { return over_; }
  int code() const { return code_; }
  const std::string& reason() const { return reason_; }
  // Something still hangs in the disk.
  bool gave_up() const { return gave_up_; }

  // Tells ledger and run state. False: a newer attempt was seen, reason() says so.
  bool tell(RunPhase how, std::string_view reason, int code) noexcept;
  // The Checkpointer goes without finish().
  void say_unfinished() const noexcept;

 private:
  RunPhase judge(bool interrupted, bool in_time, const std::string& torn);
  bool commit_last_step();
  bool wait_for_writer();
  void close() noexcept;
  void add_to_reason(const std::string& text) noexcept;
  std::string reason_of_leaving_out() const noexcept;
  void say_figures() const noexcept;

  Run& run_;
  SavePartners& partners_;
  NoticeListener& listener_;
  WriteLimit& limit_;
  SaveFlow& saves_;
  LateSave& late_;
  Evaluation& evaluation_;
  BoundarySaves& boundary_saves_;
  Heartbeat& heartbeat_;
  bool over_ = false;
  bool gave_up_ = false;
  bool left_out_ = false;  // no time for the last step
  int code_ = 0;
  std::string reason_;
};

}}}  // namespace holdfast::v1::internal
