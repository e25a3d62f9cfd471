// What a training run decides after its start, as a pure state machine: events in, actions out. No clock,
// thread, disk, log or network; equal inputs give equal outputs, and a copy goes on by itself. One object a
// rank; alone is a world of one, whose votes the shell answers at once.
//
//   RunCore core({.every = {SaveEvery::steps(50)}, .started = now});
//   for (const Action& action : core.on(StepDone{.step = 1, .took = 120ms}, now)) perform(action);
//
// A call of the training thread (StepDone, SaveCalled, …) is over with its Return or Exit; until then the
// thread waits. The shell queues what arrives while it performs actions (on_save may call back). Errors:
// std::bad_alloc; UsageError for invalid triggers. Threads: a value; the shell has one lock for it.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/planning/deadline_planner.h"
#include "holdfast/planning/run_ends.h"
#include "holdfast/planning/run_events.h"
#include "holdfast/planning/save_policy.h"
#include "holdfast/planning/vote_cadence.h"

namespace holdfast { inline namespace v0_2 { namespace run {

struct RunOptions {
  int rank = 0, world = 1;
  SaveTriggers every = {};
  OnNotice on_notice = OnNotice::train_on;  // about ends of other ranks' machines; NoticeHeard has its own
  Duration look = std::chrono::milliseconds(100);  // a pause plans this often
  bool on_device = false;                          // the state's device copies by itself
  bool second_image = false;     // a whole save is copied while another one is being written
  bool needs_others = false;     // other ranks hold parts of the state: rank 0 keeps no image of it
  Step resumed = 0;              // the step at which this attempt began
  bool resumed_durable = false;  // a next start would begin there, too
  Step durable = -1;             // the newest durable step, if that is another one
  SteadyTime started{};
};

// What the shell has measured.
struct Known {
  Costs costs;                  // agreement: of the ranks, beside a step
  Duration going_home{};        // until all that is durable is home
  Duration newer_going_home{};  // until the mirror is free for a newer save
};

class RunCore {
 public:
  explicit RunCore(RunOptions options);
  Actions on(const Event& event, SteadyTime now);
  // Before an event.
  void know(const Known& known) { known_ = known; }
  SavePolicy& schedule() { return schedule_; }
  const SavePolicy& schedule() const { return schedule_; }
  const RunEnds& ends() const { return ends_; }

  Step durable() const { return durable_; }
  const Costs& costs() const { return known_.costs; }
  bool leaving() const { return leaving_; }
  // There is something that the training thread must look at.
  bool pending() const { return ends_.pending() || wanted_ || must_stop(); }
  bool must_look() const { return leaving_ || superseded_; }
  bool stopping() const { return should_stop(); }
  bool hands_over() const;  // to a standby
  // This boundary is durable or its save is open; it is durable.
  bool is_covered() const { return covered(); }
  bool is_safe() const { return safe(); }
  bool holds_image() const { return image_.held; }
  bool writes_limited() const { return limited_; }
  bool over() const { return over_; }
  // When a wait has to end that began then.
  SteadyTime limit_of_wait(SteadyTime since) const;
  // Answers AskOthers.
  bool told_to_stop() const { return must_stop(); }
  bool evaluating() const { return evaluation_.runs; }
  bool ended_by_itself() const { return end_.by_itself; }

 private:
  // What a call of the training thread waits for; none: the program's own code runs.
  enum class Wait : std::uint8_t { none, vote, image, staged, closed, look, writer, outcome, answer };
  // disturbed: an evaluation was broken off, so memory may hold no step boundary.
  enum class Memory : std::uint8_t { boundary, updating, disturbed };
  enum class Writer : std::uint8_t { idle, writing, tidying };
  struct Image {
    // beside_step: before_update() will close the copy.
    enum State : std::uint8_t { free, copying, beside_step, whole } state = free;
    int id = 0;
    Step step = -1;
    // By an evaluation, or for a second try of the last save: it is whole, and of the newest boundary.
    bool held = false;
    bool kept = false;  // held by after_step(): no evaluation lets it go
    bool part = false;  // only this rank's share of the state
  };
  struct Save {
    // waiting: submitted to the writer. writing: it is the writer's.
    // shelved: not before the evaluation is over, or an end is announced in it.
    enum State : std::uint8_t { staging, beside_step, shelved, waiting, writing } state = staging;
    int id = 0;
    Step step = 0;
    bool asked = false;  // by the program or a notice: not recalled while there is time for both
    SteadyTime since{};  // staging began; from `writing` on, writing began
    int round = -1;      // the vote that agreed on it; −1: none
  };
  // A whole save that is being written, if the next one may be copied meanwhile.
  struct InFlight {
    Save save;
    Image image;
  };
  // The save that a call is about to begin.
  struct Wish {
    bool last = false, asked = false, blocking = false;
    Copy copy = Copy::whole;
  };
  struct Pursued {  // the notice that the run plans for
    int source = 0;
    SteadyTime seen{};
    bool operator==(const Pursued&) const = default;
  };
  struct Insurance {  // a save that began since; 0: none
    int save = 0;
    bool counts = false;  // it is open or durable
  };
  struct Evaluation {
    bool runs = false, unfinished = false, best_wanted = false;
    bool help_wanted = false, help_called = false;
    Step shares_of = -1;
    int save = 0;  // the newest that it has begun
    SteadyTime retry{};
  };
  struct Votes {
    bool pending = false;
    std::optional<Vote> result = {};
    Vote agreed = {};
    int round = 0;  // results learned: the same number on all ranks
    SteadyTime posted{};
    VoteCadence cadence;
  };
  struct End {
    bool interrupted = false, by_itself = false, voted = false, torn = false;
    bool left_out = false, in_time = true, tried_again = false;
    bool asked = false, others_told = false, gave_up = false;
    std::optional<int> code;  // known; what is being written may still end
    Duration within{};        // for that
  };

  bool alone() const { return options_.world == 1; }
  bool leads() const { return options_.rank == 0; }
  template <class A>
  void emit(A action) {
    actions_.push_back(action);
  }
  void say(Remark what) { emit(Say{what, step_}); }

  void poll();
  void arm();

  // Boundaries, and news of other threads (run_core.cc).
  void handle(const StandbyReady& event);
  void handle(const WaitedEnough& event);
  void handle(const BeforeUpdate& event);
  void handle(const StepDone& event);
  void handle(const NoticeHeard& event);
  void handle(const NoticeAnswered& event);
  void handle(const MachineWoke& event);
  void handle(const Superseded& event);
  void handle(const TimeReached& event);
  void reach(Step step);
  void give_back();
  bool keep_boundary();
  SteadyTime limit_of_end() const;

  // Votes and pauses (run_votes.cc).
  void handle(const VoteResult& event);
  bool votes_here() const;
  void vote_or_return();
  void take_requests();
  void post(const Vote& vote);
  Vote make_vote(bool at_end);
  void vote_as_rank_0(Vote& vote, bool at_end);
  void learn(const Vote& all);
  void act();
  bool stops_itself(const Vote& all) const;
  void hear_stop();
  void stop_together();
  void pause_together(bool saves);
  bool end_pause();
  void save_together();

  // Ends and plans (run_plans.cc).
  bool must_stop() const;
  bool should_stop(bool own_only = false) const;
  void pursue(const RunEnds::End& end);
  void forget_pursued();
  void insured_by(int save);
  Costs costs_of_a_decision() const;
  OnNotice policy_of(const RunEnds::End& end) const { return standby_ready_ ? OnNotice::exit : end.policy; }
  std::optional<Duration> writing_for() const;
  Standing standing() const;
  bool commit_fits() const;
  bool last_save_too_late() const;
  Plan decide();
  Plan plan_now();
  bool hopeless(const Vote& all) const;

  // One save (run_saves.cc).
  void handle(const SaveCalled& event);
  void handle(const BestMeasured& event);
  void handle(const Staged& event);
  void handle(const CopyClosed& event);
  void handle(const SaveEnded& event);
  void handle(const WriterIdle& event);
  bool covered() const;
  bool safe() const;
  void save_now();
  void begin(const Wish& wish);
  void image_is_free();
  void decline();
  void submit();
  void hand_over();
  void settle(Outcome outcome);
  void settled(const Save& save, Outcome outcome);
  bool tried_again(const Save& save, const Image& image, Outcome outcome) const;
  void bring_back();
  void release_image();
  bool close_copy();
  void drop_copy();
  void recall();
  void proceed();

  // Evaluations and the end (run_end.cc).
  void handle(const EvaluationBegun& event);
  void handle(const Ticked& event);
  void handle(const EvaluationEnded& event);
  void handle(const HelpCalled& event);
  void handle(const SharesHere& event);
  void handle(const FinishCalled& event);
  void handle(const RankLost& event);
  void handle(const OutcomeTold& event);
  void handle(const OthersAnswered& event);
  void image_to_keep();
  void image_is_kept();
  void commit_from_evaluation();
  void let_image_go();
  void end_keeping();
  bool memory_is_torn() const;
  void end_begins();
  void commit_last();
  void writer_rests();
  void judge();
  void leave_with(int code, Ending how = Ending::told);

  RunOptions options_;
  Known known_;
  RunEnds ends_;
  SavePolicy schedule_;

  Call call_ = Call::none;
  Wait wait_ = Wait::none;
  SteadyTime wait_since_{};
  Memory memory_ = Memory::boundary;
  Step step_ = 0;
  SteadyTime boundary_{};          // when step_ was reached
  bool update_announced_ = false;  // before_update() was called for the step that ended
  Step durable_ = -1;

  Image image_;
  std::optional<Save> open_;           // of image_, so at most one save is open …
  std::optional<InFlight> in_flight_;  // … beside this one
  Keep keep_ = Keep::nothing;          // what this call keeps an image for, once it has saved …
  Keep keeping_ = Keep::nothing;       // … and what the image is for that it makes or waits for now
  Writer writer_ = Writer::idle;
  int writers_save_ = 0;  // 0: none
  Wish wish_;
  bool wanted_ = false;  // a save is asked for and has not begun
  bool beside_step_works_ = true;
  bool failing_ = false;  // the newest save failed
  int newest_id_ = 0;     // the newest submitted save …
  Step newest_step_ = -1;
  bool newest_stands_ = false;  // … is open or durable
  Duration blocked_{};          // the training's waits for copies, and
  std::int64_t commits_ = 0;    // the durable saves

  std::optional<Pursued> pursued_;
  Insurance insurance_, answer_;  // answer_: to a notice that votes will report
  bool told_late_ = false, told_no_room_ = false, told_not_home_ = false;

  Evaluation evaluation_;
  Votes votes_;
  End end_;
  bool leaving_ = false, superseded_ = false, over_ = false, standby_ready_ = false;
  bool waited_enough_ = false;
  bool paused_ = false, approved_ = false;  // approved_: the machine may end in this pause
  SteadyTime look_at_{}, retry_last_{};
  bool stop_returned_ = false, saved_here_ = false;  // the answer of this call

  bool limited_ = true;
  SteadyTime armed_ = kNever;
  SteadyTime now_{};
  int ids_ = 0;
  Actions actions_;
};

}}}  // namespace holdfast::v0_2::run
