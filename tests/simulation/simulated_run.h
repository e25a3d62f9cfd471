// One training run from one seed: the real RunCore of each rank, and simulated clock, disk, machines, votes,
// mirror, notices, kills and evaluations in virtual time. Every promise is checked at every event that
// concerns it.
//
//   SimulatedRun run(seed, faults_of(seed));
//   if (const std::string broken = run.run(); !broken.empty()) …   // seed and faults repeat it exactly
//
// Errors: none. Threads: one; objects share no state but `counted`.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "holdfast/planning/run_core.h"
#include "real_store.h"

namespace holdfast::simulation {

using run::Action;
using run::Call;
using run::Event;
using run::Outcome;
using run::RunCore;
using run::Step;
using Ms = std::int64_t;  // virtual milliseconds
inline constexpr Ms kHour = 3'600'000;
inline constexpr Ms kFar = INT64_MAX / 4;
inline constexpr Ms kLongestWait = 150'000;
inline constexpr std::uint64_t kRealStores = 50;  // every so many seeds the real store is beneath

// What a seed may do to a run. Each is a bit of a mask, so that a failing seed can be shrunk.
// clang-format off
#define HOLDFAST_FAULTS(fault)                                                                                     \
  fault(several) fault(evaluations) fault(copies_beside_steps) fault(slow) fault(fail) fault(hang) fault(notice)   \
  fault(guess) fault(withdraw) fault(outlive) fault(hibernate) fault(power) fault(stop) fault(vote_late)           \
  fault(vote_lost) fault(evaluation_throws) fault(spoil) fault(supersede) fault(request) fault(torn_finish)        \
  fault(stage_fails) fault(no_update_call) fault(long_step) fault(slow_tidy) fault(by_time) fault(by_device)       \
  fault(automatic) fault(mirror) fault(write_limit) fault(alone) fault(best) fault(on_save) fault(standby)         \
  fault(repeats) fault(callback) fault(risk) fault(two_images) fault(epochs) fault(spread) fault(no_step)          \
  fault(gives_up) fault(close_fails) fault(closed) fault(stale) fault(branch) fault(unsavable) \
  fault(saves_in_updates)
#define HOLDFAST_PROMISES(promise)                                                                                 \
  promise(acknowledged_is_durable) promise(acknowledged_is_kept) promise(checkpoint_is_a_boundary)                 \
  promise(named_end_forbids) promise(notice_is_answered) promise(stop_ends_in_time) promise(run_goes_on)           \
  promise(save_is_not_overdue) promise(interval_is_learned) promise(code_0_is_complete) promise(code_75_was_told)  \
  promise(code_76_has_a_newer_attempt) promise(code_74_had_a_failure) promise(code_74_tried_twice)                 \
  promise(code_70_is_a_defect) promise(guess_ends_no_wait) promise(end_of_others_ends_no_wait)                     \
  promise(superseded_writes_nothing) promise(one_image) promise(one_write) promise(image_is_free)                  \
  promise(write_has_its_image) promise(saves_are_settled) promise(settled_once) promise(calls_return)              \
  promise(votes_at_one_step) promise(approved_is_durable) promise(training_is_not_approved)                        \
  promise(too_late_has_a_named_end) promise(limit_is_lifted) promise(limit_is_restored)                            \
  promise(best_is_saved) promise(giving_up_is_a_failure) promise(end_is_the_end) promise(request_is_served) promise(request_is_served_once)        \
  promise(last_save_waits_after_a_failure) promise(last_save_is_not_left_out) promise(sleep_pauses_nothing)        \
  promise(evaluation_tries_again) promise(undisturbed_saves_succeed) promise(last_step_is_home)                    \
  promise(ranks_tell_the_same) promise(standby_gets_the_run) promise(store_keeps_what_it_acknowledged)             \
  promise(store_reads_what_was_written) promise(store_states_are_true) promise(store_obeys_newer_claims)           \
  promise(store_commits) promise(store_starts) promise(store_obeys_failures)
// clang-format on

enum Fault : unsigned {
#define HOLDFAST_NAME(name) name,
  HOLDFAST_FAULTS(HOLDFAST_NAME) kFaults
};
using Faults = std::uint64_t;
constexpr Faults bit(Fault fault) { return Faults{1} << fault; }
enum class Promise : unsigned { HOLDFAST_PROMISES(HOLDFAST_NAME) count };
#undef HOLDFAST_NAME
const char* name_of(Fault fault);
std::uint64_t mix(std::uint64_t one, std::uint64_t other);
const char* name_of(Promise promise);

// What all seeds of this process have exercised.
struct Counted {
  std::array<std::uint64_t, static_cast<std::size_t>(Promise::count)> promises{};
  std::uint64_t events = 0, quiet_steps = 0, attempts = 0, commits = 0, remarks = 0;
};
extern Counted counted;

class SimulatedRun {
 public:
  SimulatedRun(std::uint64_t seed, Faults faults, bool trace = false);
  // Empty: the run came to its end, and all promises held.
  std::string run();

 private:
  struct Image {
    bool complete = false;
    run::Copy copy{};
    Step step = -1;
    std::uint64_t content = 0;
    bool part = false;  // a share of one file
    Ms copied = 0;      // how long its copy took
  };
  struct Announced {
    int source = 0;
    Ms at = 0, announced = 0;  // a sleep's end may come sooner than it was announced
    bool named = false, sleeps = false;
    Ms withdrawn = kFar;
    Ms told = 0;
  };
  struct Rank {
    std::optional<RunCore> core;
    bool alive = false, exited = false, lost = false;
    bool performing = false;
    std::deque<Event> heard;  // while actions are performed
    Call in_call = Call::none;
    Ms call_since = 0, wake = kFar, step_began = 0;
    run::Quiet quiet{};
    Step step = 0;
    std::uint64_t live = 0;            // memory
    std::uint64_t before = 0;          // … before the evaluation
    std::vector<std::uint64_t> truth;  // what each boundary holds
    std::map<int, Image> images;       // in use
    bool writing = false;              // from Write to SaveEnded
    int write_image = 0;
    int write_id = 0, write_round = 0;
    bool alone = false;      // rank 0 writes saves of the newest vote without the others
    bool calls = false;      // rank 0 for help
    bool announced = false;  // before_update() was called
    bool torn = false;       // the program ends inside an update
    bool saves_in_update = false;
    bool loop_over = false;  // the program goes to finish(), perhaps after a last evaluation
    bool staging = false;    // its training thread copies the state
    bool doomed = false;     // another rank is gone, and this one has not found out
    int boundary = 0;        // evaluations at this step
    int failing = 0;         // saves in a row
    Step kept = -1;          // its own state of that step is kept
    Step write_step = -1;
    int posted = 0, ticks = 0;
    bool voting = false;          // the result of its vote has not come
    bool awaits_outcome = false;  // in finish()
    std::optional<run::OutcomeTold> outcome;
    std::uint64_t acted = 0;  // counts actions
    std::unique_ptr<CostModel> measured = std::make_unique<CostModel>();
    Costs costs;               // of what is measured
    std::map<int, Step> open;  // saves, until they are settled
    std::set<int> settled;
    std::map<Step, int> failures;
    std::map<Step, Ms> staged_at, written_at;
    std::vector<Announced> ends;
    bool pausing = false, approved = false, limited = true;
    bool stop_told = false;
    bool best_measured = false, evaluated_again = false;
    int evaluations = 0;
    bool asked_in_evaluation = false;
    bool whole_evaluation = false;  // memory held the boundary when it began
    int saves_begun = 0;
  };
  struct Item {
    Ms at;
    std::uint64_t order;
    int attempt;
    std::function<void()> work;
    bool operator<(const Item& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  // Chance. Each decision has a number of its own, so a fault that is switched off moves no other decision.
  bool has(Fault fault) const { return (faults_ >> fault & 1U) != 0; }
  std::uint64_t draw(std::uint64_t what, std::uint64_t n) const;
  bool happens(Fault fault, std::uint64_t n, std::uint64_t percent) const;
  Ms between(std::uint64_t what, std::uint64_t n, Ms from, Ms to) const;
  std::uint64_t key(std::uint64_t n) const { return static_cast<std::uint64_t>(attempt_) * 1'000'003 + n; }
  bool faulty() const { return attempt_ < 4; }  // later attempts are undisturbed, so the run must complete

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Rank& leader() { return ranks_[0]; }
  SteadyTime steady(Ms at) const { return at >= kFar ? run::kNever : kStart + std::chrono::milliseconds(at); }
  static Ms ms(Duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  }
  Ms ms(SteadyTime at) const { return at == run::kNever ? kFar : ms(Duration(at - kStart)); }
  void after(Ms delay, std::function<void()> work);
  void promise(Promise which, bool held, const char* broken);
  void tell(const char* what, int r, std::int64_t number) const;  // with `trace`

  // Attempts, machines and their notices (simulated_run.cc).
  void start_attempt();
  void choose_branch();
  void plan_trouble(Ms horizon);
  void announce(int r, run::NoticeHeard notice, Ms left, bool lives, Ms gone);
  void repeat(int r, run::NoticeHeard notice, std::uint64_t k);
  void answer(int r, std::uint64_t k);
  void check_answer(int r, const run::NoticeHeard& notice, Ms left, Ms gone, bool lives, Ms told_at);
  void ask_for_a_save(int r);
  void stop_at_the_end();
  void kill(int r);
  void lose(int r);
  void find_loss(int r);
  void leave_in_error(int r, int code);
  void check_over();
  Ms longest_write() const;
  Ms time_to_answer() const;

  // The training program of a rank (simulated_program.cc).
  void call(int r, Call which, const Event& event);
  void begin_step(int r);
  void update_begins(int r);
  void end_loop(int r);
  void finish(int r);
  void give_up();
  void tick(int r);
  void arrive(int r);
  void step_done(int r, Step step);
  void next(int r, Call done, bool stop);
  void after_step_returned(int r, bool stop);
  void evaluate(int r, Call done, bool stop);
  void check_overdue(Step step);

  // The shell: actions become effects (simulated_shell.cc).
  void give(int r, const Event& event);
  void perform(int r, const run::Stage& action);
  void perform(int r, const run::CloseCopy& action);
  void perform(int r, const run::FreeImage& action);
  void perform(int r, const run::Write& action);
  void perform(int r, const run::Decline& action);
  void perform(int r, const run::SendShare& action);
  void perform(int r, const run::CallForHelp& action);
  void perform(int r, const run::SendOwn& action);
  void perform(int r, const run::AwaitOutcome& action);
  void perform(int r, const run::Settle& action);
  void perform(int r, const run::LimitWrites& action);
  void perform(int r, const run::PostVote& action);
  void perform(int r, const run::Return& action);
  void perform(int r, const run::Quiet& action);
  void perform(int r, const run::WakeAt& action);
  void perform(int r, const run::LetMachineGo& action);
  void perform(int r, const run::TellOutcome& action);
  void perform(int r, const run::AskOthers& action);
  void perform(int r, const run::Exit& action);
  void perform(int r, const run::Say& action);
  run::Known known_of(int r) const;
  Duration going_home(bool and_newer) const;
  void measure(int r) { rank(r).costs = rank(r).measured->costs(); }
  bool waits_for_a_vote(const Rank& x) const;
  void wait_enough(int r);
  void tell_own(int r);
  void look(int evaluation);
  void check_allowed();
  void check_pressure(int r);
  void check_exit(int r, int code);
  bool named_end_within(Ms within) const;

  // The disk of rank 0, and the mirror.
  void write_goes_on();
  void write_done();
  void commit(Step step);
  void write_ended(int r, Outcome outcome);
  void go_home();
  RealStore::Image image_of(Step step) const;
  std::optional<RealStore::Image> in_flight();
  void ask_the_store();

  static constexpr SteadyTime kStart{std::chrono::hours(1000)};

  struct Broken {
    std::string what;
  };
  struct Disk {
    bool busy = false;
    Step step = -1;
    int round = -1;
    bool bad = false;
    bool measured = false;  // a usual write, which no limit slows down
    Ms began = 0, rest = 0, since = 0, patience = 0;
    int timer = 0;
  };

  const std::uint64_t seed_;
  const Faults faults_;
  const bool trace_;
  int world_ = 1;
  Step last_ = 0, every_ = 0, evaluate_every_ = 0;
  Ms step_ms_ = 0, write_ms_ = 0, every_ms_ = 0, home_ms_ = 0, tick_ms_ = 0;
  Ms longest_wait_ = 0;  // of a rank for its own disk
  OnNotice policy_ = OnNotice::train_on;
  bool calm_ = false;  // no fault breaks promises about time

  Ms now_ = 0;
  std::uint64_t order_ = 0;
  std::priority_queue<Item> queue_;
  std::vector<Rank> ranks_;
  bool complete_ = false;
  int attempt_ = 0;

  std::map<Step, Ms> store_;         // the model of a store
  std::unique_ptr<RealStore> real_;  // beneath the model; null: the model is the store
  Step acknowledged_ = -1;
  Disk disk_;
  Step home_ = -1, going_home_ = -1;  // −1: none
  Step branch_ = -1;                  // the older step at which this attempt has begun; −1: the newest

  // Of this attempt.
  Ms began_ = 0, last_commit_ = 0, last_begun_ = 0;
  int last_code_ = -1, told_ = 0, open_ends_ = 0, requests_ = 0;
  bool stop_told_ = false, broken_ = false, superseded_ = false, heard_newer_ = false, torn_called_ = false;
  bool said_not_home_ = false, said_torn_ = false, any_hibernation_ = false, only_sleeps_ = true;
  Ms guess_at_ = -1, finish_at_ = -1, stop_ends_by_ = -1;
  Ms requested_at_ = -1;
  bool no_step_ = false, gave_up_ = false;
  bool last_tried_ = false, busy_at_finish_ = false;  // in finish()
  Step requested_step_ = -1;
  Ms standby_ = kFar;  // since when one is ready
  bool standby_seen_ = false;
  Ms handed_over_by_ = kFar;
  std::vector<Ms> write_times_, measured_times_, stalls_;
  std::map<Step, int> arrived_;
  std::map<std::pair<Step, int>, int> sent_;     // own states, at each evaluation
  std::map<Step, std::pair<bool, bool>> saved_;  // a rank told that step k is saved; is not
  std::map<Step, std::map<int, std::uint64_t>> shares_;
  std::set<int> declined_, refused_;
  std::map<int, Outcome> ended_;
  std::map<int, run::Vote> ballots_;
  std::map<int, int> voters_;
};

}  // namespace holdfast::simulation
