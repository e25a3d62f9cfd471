// The other ranks of the run, as far as its core asks for them: votes, their parts in saves, their own state
// in an evaluation, and the outcome at the end. Alone, a vote is its own result, and nothing else is asked.
//
// A save that all ranks have agreed on has the number of its vote. Rank 0's writer leads it, and a thread of
// each other rank follows. Those wait for rank 0's first text, so rank 0 sends one for each such number, even
// if it writes alone or nothing.
//
// Errors: as RankChannel. Threads: the training thread, unless a method says any.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/planning/run_events.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/share_writer_thread.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class OtherRanks {
 public:
  // `group`: null if this process is alone.
  OtherRanks(Run& run, RankGroup* group);

  bool alone() const { return group_ == nullptr; }
  bool leads() const { return alone() || group_->leads(); }
  int rank() const { return alone() ? 0 : group_->rank(); }
  int world_size() const { return alone() ? 1 : group_->world_size(); }
  RankGroup& group() { return *group_; }
  bool sharing() const { return !alone() && group_->sharing(); }
  // This process writes checkpoints, or shares of them.
  bool writes() const { return leads() || sharing(); }

  // After the claim: which ranks see rank 0's volume. Collective.
  void begin_sharing(bool wanted);
  // A share has ended (any thread).
  void when_share_ends(std::function<void(int save, run::Outcome outcome)> told) {
    share_ended_ = std::move(told);
  }

  // Votes. `holds_image`: rank 0 has all of the boundary in an image.
  void post(const run::Vote& vote, bool at_end, bool holds_image);
  // One look. `left`: until the end of this rank's own machine. Throws if a rank is lost.
  enum class At { boundary, pause, last_boundary, end };
  std::optional<run::Vote> result(std::optional<Duration> left, At at);
  // The rank that was told to stop, and the rank whose memory is torn; −1: none.
  int told_to_stop() const { return stop_.load(std::memory_order_relaxed); }  // any thread
  int torn() const { return torn_.load(std::memory_order_relaxed); }
  // The longest time in which bring_together() waited for others.
  Duration agreement() const { return Duration(agreement_.load(std::memory_order_relaxed)); }  // any thread
  // Collects on rank 0 the state of which other ranks hold parts. Collective.
  void gather();
  // Since the last call, a save failed because of another rank.
  bool save_was_spoiled();

  // Saves.
  std::int64_t plan() const { return !leads() || owes(round_) ? plan_ : 0; }  // of the newest vote
  void add_values(Measurements& measurements);
  void note_best(const std::string& name, double value) { best_[name] = value; }
  // A save of this rank has an image now.
  void staged(const BegunSave& save);
  // Any thread. Adds to `request` what the writer needs from others.
  void join(WriteRequest& request, const Staged& staged, int round, bool has_all);
  void hand_share(const run::Write& action, Staged staged, const BegunSave& save);
  // Why a step could not be staged.
  struct NotStaged {
    std::int64_t step = -1;
    std::string why;
  };
  // This rank takes no part in the save of that vote. `failure` counts if it is of that save's step. Rank 0:
  // any thread; others: the training thread.
  void decline(int round, const NotStaged& failure);
  // Rank 0 writes alone: sends what this rank alone has. Returns the save's handle.
  SaveHandle send_own();
  // The loop ends with this step: what is sent of it from here on is this rank's own state now.
  void hold() noexcept;
  void lift_limit(bool so) noexcept;
  std::shared_ptr<Snapshot> part_of(std::shared_ptr<Snapshot> whole) const;

  // An evaluation begins, at the same step on all ranks.
  // True: another one was at this step.
  bool evaluation_begins();
  void send_share() noexcept;
  // Any thread. Rank 0: puts the others' own state of that evaluation into an image; null: it is not all
  // here.
  std::function<void(const Snapshot& image)> own_of_boundary(const std::vector<TensorSpec>& tensors);
  void call(bool so) noexcept;
  bool called() const noexcept { return !alone() && group_->channel().called(); }
  void heard(const Notice& notice) noexcept;

  // The end.
  void tell_outcome(int code, const std::string& reason);
  struct Outcome {
    int code = 0;
    std::string reason;
    std::int64_t durable = -1;
  };
  // `told`: this rank was told to stop.
  Outcome hear_outcome(const std::function<bool()>& told);
  // Rank 0, after a last save that failed: which rank was told to stop after the last vote; empty: none.
  std::string ask_for_stops() noexcept;
  // Waits for others end within that. False: a share hangs in the disk.
  void limit_waits(Duration grace) noexcept;
  // Shorter than the time after which others count this rank as lost: it does not vote while it waits.
  Duration longest_wait() const { return group_->channel().timeout() / 2; }
  bool rests() const;
  // Any save that is open has failed; rank 0 owes nothing.
  void settle(const char* why) noexcept;
  // Ends the thread that writes shares.
  void stop() noexcept { writer_.reset(); }
  // A write hangs in the disk and is left behind: afterwards no thread uses the program's objects.
  void part();

 private:
  void learn(const Agreed& agreed);
  bool owes(int round) const noexcept;
  // The step of that save; nullopt: nothing is owed for it.
  std::optional<std::int64_t> pay(int round) noexcept;
  void limit_patience() noexcept;
  SharedWriteOptions limits() const;
  std::function<void()> bring_own_of_others(const Snapshot& snapshot) const;
  void tell_own();
  std::string own_now(std::int64_t step);
  std::string own() const;

  Run& run_;
  RankGroup* const group_;
  std::unique_ptr<ShareWriterThread> writer_;  // null: rank 0 writes alone
  std::function<void(int, run::Outcome)> share_ended_;

  std::optional<run::Vote> own_vote_;  // alone: the result
  SteadyTime asked_since_{};
  int round_ = 0;  // results learned: the same number on all ranks
  // Agreed saves of which all write shares: the same number on all ranks.
  std::atomic<std::uint64_t> shared_saves_{0};
  std::int64_t plan_ = 0;
  struct {
    std::optional<SteadyTime> any, named;
  } patient_until_;  // the announced ends that the patience knows
  std::atomic<int> stop_{-1}, torn_{-1};
  std::uint64_t spoiled_ = 0;
  std::atomic<Duration::rep> agreement_{0};

  std::map<std::string, double> best_;
  std::int64_t evaluated_ = -1;  // the step of the last evaluation
  int evaluations_ = 0;          // earlier ones at that step
  // Rank 0 must still send the first text of these saves. One may wait for the writer while the next is
  // agreed on.
  struct Debt {
    int round = 0;  // 0: none
    std::int64_t step = 0;
  };
  mutable Mutex mutex_;
  std::array<Debt, 4> debts_ HOLDFAST_GUARDED_BY(mutex_);
  std::string boundary_ HOLDFAST_GUARDED_BY(mutex_);  // the name of the texts with own state in it

  std::int64_t told_ = -1;         // last step whose own state was told
  std::int64_t told_before_ = -1;  // the one before that
  std::int64_t held_step_ = -1;    // the step of held_own_
  std::string held_own_;           // own state as after_step() left it
  std::string share_own_;          // own state of the share that has been copied and not handed over
  bool own_failed_ = false;        // that text was the reason for a failure, not the state
  std::vector<std::string> told_boundaries_;
  bool asked_ = false;
};

}}}  // namespace holdfast::v0_2::internal
