// What happens to a training run (events) and what its core wants done (actions). Plain values.
//
// Errors: none. Threads: values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>

#include "holdfast/base/clock.h"
#include "holdfast/planning/run_ends.h"

namespace holdfast { inline namespace v0_2 { namespace run {

using Step = std::int64_t;
inline constexpr Step kNoStep = INT64_MAX;

// What one rank tells the others at a step boundary that all compute alike. A rank number says who asks; −1:
// none.
struct Vote {
  Step lowest = 0, highest = 0;  // the voters' steps: unequal ones are a UsageError of the program
  int save = -1, stop = -1, pause = -1, busy = -1, torn = -1;
  Step durable = -1;     // rank 0: the newest durable step
  EndsLeft left = {};    // of this rank's own sources
  Duration needs{};      // rank 0: a last save that begins now takes this long; 0: unknown
  Duration step_time{};  // 0: not measured
  Step due = -1;         // rank 0: the next step at which a save by steps falls due
  bool alone = false;    // rank 0 writes a save that begins now without the others
};
// The result of two votes: the shortest times left, the largest of everything else.
Vote merged(const Vote& one, const Vote& other);

enum class Call : std::uint8_t {
  none,
  update,
  step,
  save,
  best,
  evaluation_begin,
  tick,
  evaluation_end,
  finish
};
enum class Outcome : std::uint8_t { durable, failed, overtaken, superseded };

// For what an image of the boundary is kept: an epoch ends, the loop ends, or an evaluation begins.
enum class Keep : std::uint8_t { nothing, epoch, last, evaluation };

// Events of the training thread. Each names its step, because quiet steps are no events.
struct BeforeUpdate {
  Step step = 0;
};
struct StepDone {
  Step step = 0;
  bool announced = false;     // before_update() was called for its update
  Keep keep = Keep::nothing;  // the program may change the state after this call: keeps an image of it
};
struct SaveCalled {
  Step step = 0;
};
struct BestMeasured {
  Step step = 0;
};  // a value among the best (KeepBest) was measured on this boundary
struct EvaluationBegun {
  Step step = 0;
  bool again = false;  // another one was at this step
};
struct Ticked {};
struct EvaluationEnded {
  bool thrown = false;
  bool cut_short = false;  // the program says that it was not finished
};
struct FinishCalled {
  Step step = 0;
  bool stale = false;  // a kept image lacks what has changed unseen
};
// Events of other threads, beside NoticeHeard.
struct MachineWoke {};  // it slept, and this process runs again
struct Superseded {};   // a newer attempt owns the directory
struct RankLost {       // or another error that ends the run
  int code = 75;
  Duration within = std::chrono::seconds(10);  // for what is being written; Duration::max(): as a stop
};
struct WaitedEnough {};  // on ranks other than 0, for the own disk
struct StandbyReady {  // a standby waits to go on with the run: at an announced end it is handed over at once
  bool so = false;
};
struct HelpCalled {};  // rank 0: a rank in an evaluation has news
struct SharesHere {
  Step step = 0;
  int image = 0;  // that has them
};                // rank 0: every rank sent its own state of that boundary
struct OutcomeTold {
  int code = 0;
  Step durable = -1;
};  // the others: how rank 0's run ended
struct OthersAnswered {
  bool told = false;
};                      // to AskOthers: one of them was told to stop
struct TimeReached {};  // WakeAt's time
// Answers to actions.
struct Staged {
  int image = 0;
  bool ok = true;
  bool part = false;    // it holds only this rank's share of the state
  bool closed = false;  // a copy beside the step turned out to need no CloseCopy
};                      // to Stage; a device may still copy
struct CopyClosed {
  int image = 0;
  bool intact = true;
  bool failed = false;  // the copy could not be made; its save has failed
};                      // to CloseCopy
struct SaveEnded {
  int save = 0;
  Outcome outcome = Outcome::durable;
};                     // to Write; nobody reads the image any more
struct WriterIdle {};  // the tidying after it is over
struct VoteResult {
  Vote all;
};  // to PostVote
using Event =
    std::variant<WaitedEnough, NoticeAnswered, StandbyReady, BeforeUpdate, StepDone, SaveCalled, BestMeasured,
                 EvaluationBegun, Ticked, EvaluationEnded, FinishCalled, NoticeHeard, MachineWoke, Superseded,
                 RankLost, HelpCalled, SharesHere, OutcomeTold, TimeReached, Staged, CopyClosed, SaveEnded,
                 WriterIdle, VoteResult, OthersAnswered>;

// How the state is copied: at once; beside the next step, up to its update; by the device, while the run goes
// on.
enum class Copy : std::uint8_t { whole, beside_step, by_device };
enum class Remark : std::uint8_t {
  too_late,
  no_room,
  not_home,
  pausing,
  going_on,
  outlived,
  awake,
  no_image,
  not_kept,
  late_gives_up,
  spoiled,
  torn,
  declined
};

// Actions, performed in this order.
struct Stage {
  int image = 0;
  Step step = 0;
  Copy copy = Copy::whole;
  bool for_save = false;
};
struct CloseCopy {
  int image = 0;
};  // ends a copy beside the step, and compares it with live memory
struct FreeImage {
  int image = 0;
};
struct Write {
  int save = 0;
  int image = 0;
  Step step = 0;
  int round = -1;
};  // others than rank 0: their share
struct Decline {
  int round = 0;
};  // this rank takes no part in the save of that vote
struct SendShare {
  Step step = 0;
};  // the own state goes to rank 0, for an evaluation
struct SendOwn {
  int round = 0;
};                       // the same, for a save of that vote that rank 0 writes alone
struct AwaitOutcome {};  // OutcomeTold follows
struct CallForHelp {};   // tells rank 0 that a notice waits for its commit
struct Settle {
  int save = 0;
  Step step = 0;
  Outcome outcome = Outcome::durable;
};  // calls on_save
struct LimitWrites {
  bool so = true;
};  // WritingOptions::write_limit applies
struct PostVote {
  Vote vote;
};
struct Return {
  Call call = Call::none;
  bool stop = false;
  bool saved = false;
  int save = 0;  // the newest save of this boundary; 0: none
};
struct Quiet {
  Step before = 0;
  SteadyTime until{};
};  // no event for steps before that step and that time
struct WakeAt {
  SteadyTime at = kNever;
};  // replaces the one before; kNever: none
struct LetMachineGo {
  bool so = false;
};                    // the machine may end at once
struct AskOthers {};  // rank 0: was any of them told to stop since the last vote?
struct TellOutcome {
  int code = 0;
  Step durable = -1;
};
enum class Ending : std::uint8_t {
  complete,
  interrupted,
  left_out,  // no time was left for the last save
  torn,
  no_step,
  failed,
  superseded,
  told  // by rank 0, or by RankLost
};
struct Exit {
  int code = 0;
  Ending how = Ending::told;
};
struct Say {
  Remark what{};
  Step step = 0;
};
using Action = std::variant<SendOwn, AwaitOutcome, Stage, CloseCopy, FreeImage, Write, Decline, SendShare,
                            CallForHelp, Settle, LimitWrites, PostVote, Return, Quiet, WakeAt, LetMachineGo,
                            TellOutcome, Exit, Say, AskOthers>;
// Never allocates, so that an event is not lost without memory.
class Actions {
 public:
  static constexpr std::size_t kMost = 24;  // no event leads to more than half as many

  Actions() = default;
  Actions(const Actions& other) : count_(other.count_) { copy(other); }
  Actions& operator=(const Actions& other) {
    count_ = other.count_;
    copy(other);
    return *this;
  }
  void push_back(const Action& action) {
    if (count_ < kMost) actions_[count_++] = action;
  }
  void clear() { count_ = 0; }
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  const Action* begin() const { return actions_.data(); }
  const Action* end() const { return actions_.data() + count_; }

 private:
  void copy(const Actions& other) {
    for (std::size_t i = 0; i < count_; ++i) actions_[i] = other.actions_[i];
  }

  std::array<Action, kMost> actions_;
  std::size_t count_ = 0;
};

}}}  // namespace holdfast::v0_2::run
