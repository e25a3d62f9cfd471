// Runs the core (planning/run_core.h): what the program calls, other threads hear and the writer ends become
// its events, and its actions become effects.
//
// The thread that brings an event carries out the actions that need no training thread, after it has released
// the lock: they may call the program's on_save, which may come back here. Actions after a notice wait for
// look() or a call, because the monitor holds a lock while it tells. The others wait for the training thread,
// which performs them inside the call that they belong to.
//
// Errors: call() passes on those of OtherRanks, and of a late result. Without memory an event is not lost.
// Threads: call(), begin() and interrupted() the training thread; other methods any.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/checkpoint/internal/notice_listener.h"
#include "holdfast/checkpoint/internal/other_ranks.h"
#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/saves.h"
#include "holdfast/planning/run_core.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// When the next save falls due by itself, for people.
struct NextSave {
  std::optional<SteadyTime> at = {};
  std::optional<std::int64_t> step = {};
  std::optional<Duration> interval = {};  // SavePolicy::interval()
};

class RunDriver final : public SaveListener {
 public:
  RunDriver(Run& run, Saves& saves, OtherRanks& others);

  // The loop begins with what run.started holds. Hears what was announced before.
  void begin();
  bool begun() const { return begun_.load(std::memory_order_acquire); }

  // A call of the program, until the core lets it return.
  struct Answer {
    run::Return returned;
    std::optional<run::Exit> exit;  // the run is over
    SaveHandle save;                // that this call has begun, or that failed at once
  };
  Answer call(const run::Event& event);
  // An event that is no call.
  void give(const run::Event& event) noexcept;

  // No event for steps before that step and that time, unless disturbed().
  run::Quiet quiet() const;
  bool disturbed() const noexcept { return disturbed_.load(std::memory_order_relaxed); }
  // tick(): there is something that the training thread must look at. Reads a flag.
  bool pressed() const noexcept { return pressed_.load(std::memory_order_relaxed); }

  void hear(const Notice& notice) noexcept;
  void hear_superseded() noexcept { give(run::Superseded{}); }
  void standby_is_ready(bool so) noexcept;
  // Work for a notice that needs no training thread: the watch's thread looks about once a second.
  void look() noexcept;

  // Something was heard that the training has not looked at.
  bool pending() const noexcept;
  // look() has something to do, or may soon.
  bool has_work() const noexcept;
  bool evaluating() const noexcept { return evaluating_.load(std::memory_order_relaxed); }
  bool must_stop() const noexcept;
  bool covered() const noexcept;
  bool safe() const noexcept;
  bool may_go() const noexcept { return may_go_.load(std::memory_order_relaxed); }
  std::optional<Duration> time_left() const noexcept;
  NextSave next_save() const noexcept;
  // A wait that began at `since` has to end.
  bool out_of_time(SteadyTime since) noexcept;
  // Of the stop or the end that the run plans for.
  std::string text_of_end() const;
  // Why the run stops; empty while it does not.
  std::string reason() const noexcept;
  void learn_lives(const std::vector<MachineLife>& lives) noexcept;
  bool leads() const { return others_.leads(); }
  // The writer has a save, or tidies up after it.
  bool writing() const noexcept { return in_flight_.load() != 0; }

  NoticeListener& listener() { return listener_; }

  void save_ends(const SaveHandle::Shared& save, Outcome outcome) noexcept override;
  void writer_rests() noexcept override { give(run::WriterIdle{}); }
  void writer_superseded() noexcept override { give(run::Superseded{}); }

 private:
  static constexpr std::size_t kMostWaiting = 32;
  class Pausing;

  void consider(run::Event event, run::Actions& now) HOLDFAST_REQUIRES(mutex_);
  void take(const run::Action& action, run::Actions& now) HOLDFAST_REQUIRES(mutex_);
  void carry_out(const run::Actions& actions) noexcept;
  void carry_out_noticed() noexcept;
  void drop_waiting() noexcept;
  void decline(int round) noexcept;
  void perform(const run::Action& action, Answer& answer);
  void say(const run::Say& said) noexcept;
  void too_late(std::int64_t step) noexcept;
  void not_home(std::int64_t step) noexcept;
  void wait(Answer& answer);
  void hear_others(const run::Vote& all);
  void ask_the_program();
  std::string end_now() const HOLDFAST_REQUIRES(mutex_);
  std::string reason_now() const HOLDFAST_REQUIRES(mutex_);
  void record_reason() noexcept HOLDFAST_REQUIRES(mutex_);
  void look_at_sleep() noexcept;
  run::NoticeHeard event_of(const Notice& notice) HOLDFAST_REQUIRES(mutex_);
  bool next_waiting(run::Action& next);
  void count_as_waiting();
  void say_pause(std::int64_t step);

  Run& run_;
  Saves& saves_;
  OtherRanks& others_;
  NoticeListener listener_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::optional<run::RunCore> core_ HOLDFAST_GUARDED_BY(mutex_);
  std::array<run::Action, kMostWaiting> waiting_ HOLDFAST_GUARDED_BY(mutex_);
  std::size_t first_ HOLDFAST_GUARDED_BY(mutex_) = 0, count_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  run::Actions noticed_ HOLDFAST_GUARDED_BY(mutex_);  // for look() or a call
  bool calls_ HOLDFAST_GUARDED_BY(mutex_) = false;    // the same: CallForHelp
  std::optional<run::Exit> exit_ HOLDFAST_GUARDED_BY(mutex_);
  SteadyTime wake_ HOLDFAST_GUARDED_BY(mutex_) = run::kNever;
  run::Quiet quiet_ HOLDFAST_GUARDED_BY(mutex_){};
  std::vector<std::pair<const void*, std::string>> sources_
      HOLDFAST_GUARDED_BY(mutex_);                                          // the core's numbers of sources
  std::optional<run::NoticeAnswered> decided_ HOLDFAST_GUARDED_BY(mutex_);  // what the program has answered
  Duration asleep_ HOLDFAST_GUARDED_BY(mutex_){};   // Clock::asleep() when a hibernation was announced
  std::string reason_ HOLDFAST_GUARDED_BY(mutex_);  // of the stop that the program was told
  bool left_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::int64_t counted_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // durable saves that the schedule knows

  std::atomic<bool> begun_{false}, disturbed_{false}, pressed_{false}, evaluating_{false}, may_go_{false};
  std::atomic<bool> standby_{false};         // is ready
  std::atomic<std::int64_t> evaluated_{-1};  // the step of the newest evaluation
  std::atomic<int> in_flight_{0};
  std::atomic<int> writing_{0};  // the save that the writer has

  // The training thread's.
  run::Call in_call_ = run::Call::none;
  bool ends_ = false;  // the vote is that of the end
  bool voting_ = false, pausing_ = false, said_pause_ = false, tells_outcome_ = false;
  SteadyTime waits_since_{}, said_{};
  Duration waited_{};  // since the last action; in slices, because a test's clock may stand still
  std::optional<TrainingTime::Pause> pause_;
  std::optional<Waiting> waiting_time_;
  bool result_failed_ = false;
  std::string others_told_;

 public:
  // At the end: rank 0 must tell the others; what ask_for_stops() found.
  bool tells_outcome() const { return tells_outcome_; }
  const std::string& others_told() const { return others_told_; }
  const std::string& told_reason() const { return told_reason_; }

 private:
  std::string told_reason_;
};

}}}  // namespace holdfast::v0_2::internal
