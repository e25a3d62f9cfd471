// The inside of a Checkpointer. Nine sources, by idea: checkpointer.cc (construction and the public face),
// checkpointer_start.cc (from a start to the first step), checkpointer_step.cc (the training loop),
// checkpointer_late.cc (staging beside the next step), checkpointer_notice.cc (what notices ask for),
// checkpointer_finish.cc (evaluation, the end); with other ranks checkpointer_together.cc (the loop and the
// end), checkpointer_evaluation.cc (evaluations) and checkpointer_share.cc (one file written by all).
//
// Threads: the training thread, except `monitor`, `costs`, `shelf` and what the writer keeps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "holdfast/base/owner_process.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/checkpoint/internal/outlook.h"
#include "holdfast/checkpoint/internal/run_start.h"
#include "holdfast/checkpoint/internal/start_finder.h"
#include "holdfast/checkpoint/internal/training_time.h"
#include "holdfast/checkpoint/measurements.h"
#include "holdfast/interruption/monitor.h"
#include "holdfast/interruption/notice_watch.h"
#include "holdfast/ledger/ledger.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/planning/cost_model.h"
#include "holdfast/ranks/rank_group.h"
#include "holdfast/ranks/share_writer_thread.h"
#include "holdfast/staging/arrival_keeper.h"
#include "holdfast/staging/image_stager.h"
#include "holdfast/staging/late_stager.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/async_writer.h"
#include "holdfast/writing/file_verifier.h"
#include "holdfast/writing/save_book.h"

namespace holdfast { inline namespace v1 {

struct Checkpointer::State {
  using BegunSave = std::shared_ptr<SaveHandle::Shared>;
  using Waiting = internal::TrainingTime::Waiting;
  enum class Phase { constructed, running, together, finished };  // together: running, with other ranks

  // A forked child has none of its threads, and its files are the parent's.
  const OwnerProcess process = {};

  State(SnapshotSource& source, CheckpointerOptions options);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The start (checkpointer_start.cc).
  Resumed resume();
  void start_alone(const internal::BeforeClaim& before_claim);
  Resumed lead();    // of several ranks: rank 0
  Resumed follow();  // any other
  void begin_training();
  void begin_writing();
  void learn_lives() noexcept;
  bool note_end(RunPhase how, const char* reason, int exit_code) noexcept;  // false: superseded

  // The loop (checkpointer_step.cc).
  Decision after_step(const StepReport& report);
  void arrive(const StepReport& report);
  void note_loss(double value) noexcept;
  Decision step_together(const StepReport& report);
  void act(Decision& decision) noexcept;
  void save_boundary(Decision& decision, const Plan& plan) noexcept;
  SaveHandle save();
  SaveHandle save_now(const Waiting& waiting);
  // Of the save that has begun; null: it had not come so far.
  // Inside a catch block: it may be any exception.
  SaveHandle staging_failed(BegunSave save) noexcept;
  void metric(const std::string& name, double value);
  void choose_interval();  // by what saves have cost so far
  bool covered() const;    // this step boundary is durable or on its way
  bool safe() const;       // it is durable
  void note_record();      // of what is staged now
  internal::Staged stage(Part part);
  // `waited`: how long the training thread has waited for this save.
  void submit(internal::Staged staged, const BegunSave& save, Duration waited);
  BegunSave begin_save(bool asked_for) const;
  bool wait_for_image(Duration limit = Duration::max());  // false when that or the deadline passed first

  // What notices ask for (checkpointer_notice.cc).
  void listen();
  internal::RiskCommand command_for(const Notice& notice) const;  // any thread; empty: none
  void take_requests();
  void tell_stop(Decision& decision) noexcept;
  Plan plan_now() noexcept;
  internal::Reached reached() const;
  Standing standing_of_writer() const noexcept;  // any thread
  std::int64_t newest_durable() const noexcept;  // any thread; -1: none
  void pause(Decision& decision) noexcept;
  void lift_limit() noexcept;  // somebody waits against time: no limit to the writes
  void restore_limit() noexcept;
  bool commit_fits() const noexcept;  // any thread

  // The image of the boundary during an evaluation, for whoever hears a notice first.
  struct Shelf {
    std::mutex mutex;
    std::condition_variable handed_over;
    std::optional<std::thread::id> handing;  // that thread gives `image` to the writer, without the mutex
    internal::Staged image;
    std::string own_text;   // what the image still lacks of other ranks: their text of that name
    SteadyTime boundary{};  // when the training stood there
    SaveHandle tried;       // the newest save of it, whoever began that
    BegunSave save;         // the newest that was begun here
    SteadyTime retry{};     // after one that failed, not before
  };
  void put_on_shelf(std::string own_text = {}) noexcept;
  bool commit_from_shelf() noexcept;  // any thread; true: it is durable or on its way
  void clear_shelf() noexcept;        // what was submitted is the newest save then

  // Staging beside the next step (checkpointer_late.cc).
  void before_update();
  bool checks_late() const;  // the one that is opened or closed now
  void open_late(const BegunSave& save, const Waiting& waiting);
  void submit_independent(const BegunSave& save, const Waiting& waiting);
  void close_late(bool ended = false);
  void settle_late();
  void drop_late();
  void give_up_late_staging();

  // Evaluation and the end (checkpointer_finish.cc).
  bool tick();
  void enter_evaluation();
  void leave_evaluation(bool thrown_out);
  internal::Staged image_of_boundary();
  internal::Staged image_in_use() const;
  std::string why_torn() const;  // memory is no step boundary; empty: it is
  void check_undisturbed() const;
  int finish();
  int finish_alone();
  RunPhase judge(bool interrupted, bool in_time, const std::string& torn);
  void add_to_reason(const std::string& text) noexcept;
  std::string reason_of_leaving_out() const noexcept;
  void say_figures() const noexcept;
  void say_unfinished() const noexcept;
  bool commit_last_step();  // false: no time was left
  bool wait_for_writer();   // false when the deadline passed first
  Digest digest_now();

  // With other ranks (checkpointer_together.cc).
  void agree(Decision& decision);
  void act_together(Decision& decision, const Agreed& agreed);
  void plan_together();
  void bring_together();
  void or_abandon(const std::function<void()>& work);
  Agreed await(const char* what, bool rank_0_may_save = false);
  void learn(const Agreed& agreed);
  void pass_on_stop(const Agreed& agreed);
  void stop_together(Decision& decision, const Agreed& agreed);
  void save_together(Decision& decision, const Plan& plan, const Agreed& agreed);
  void pause_together(Decision& decision, Plan plan, Agreed agreed);
  void post(const Plan& plan);
  void post(const Vote& vote);
  Vote vote(const Plan& plan) noexcept;
  void vote_on_plan(Vote& vote) const noexcept;
  Duration needed_for_last() const noexcept;
  std::optional<Duration> left_here() const;
  std::optional<Duration> named_left_here() const;
  std::string own_now(std::int64_t step);
  void tell_own();
  std::function<void()> bring_own_of_others(const Snapshot& snapshot) const;
  void part_together();
  void tell_outcome();
  void hear_outcome();
  void abandon(const Error& error) noexcept;

  // An evaluation by all ranks (checkpointer_evaluation.cc).
  void enter_together();
  void tell_boundary(const std::string& name) noexcept;
  bool bring_own_to_shelf();  // the watch's thread; false: not all have told it

  // One file by all ranks (checkpointer_share.cc).
  void find_ranks_on_volume();
  void begin_round(const Agreed& agreed);
  void end_round(const Decision& decision) noexcept;
  void send_share(Decision& decision, bool last_one);
  void hand_share(Decision& decision, bool last_one);
  internal::Staged stage_share(bool last_one);
  bool wait_for_own_image();  // false: it is not free in time
  Duration longest_wait_for_share() const;
  SharedWriteOptions share_limits() const;
  void limit_patience() noexcept;
  void rest_hand(Duration grace) noexcept;

  void require(Phase needed, const char* call) const;
  bool loop_runs() const { return phase == Phase::running || phase == Phase::together; }

  const CheckpointerOptions options;
  const std::unique_ptr<internal::RankGroup> ranks;  // null: alone
  SnapshotSource& source;
  FileSystem& file_system;
  Clock& clock;
  Ledger ledger;
  const SteadyTime constructed;
  std::atomic<bool> may_go{false};  // paused, and the step is durable
  Monitor monitor;
  FileVerifier verifier;
  internal::ImageStager stager;
  SavePolicy policy;
  std::shared_ptr<internal::SaveBook> book;  // shared with every save that has begun
  CostModel costs;
  internal::TrainingTime time;
  internal::Outlook outlook;
  LossRing losses;
  internal::StartParts parts;
  internal::StartFinder finder;
  internal::StartedRun started;  // from resume() on

  Phase phase = Phase::constructed;
  bool planned_with_slots = false;  // planned again after the first update
  bool save_wanted = false;         // asked for, and not staged yet
  std::int64_t saves_measured = 0;  // by the policy
  std::optional<double> loss;       // of the last step
  bool evaluation_due = false;      // as the last step's report said
  bool loss_was_finite = true;      // the newest that was told
  Measurements measurements;
  bool best_wanted = false;  // the step boundary is to be saved once its evaluation is over

  internal::Staged late;       // while late_stager is open: its image
  BegunSave late_save;         // its save
  bool late_is_whole = false;  // it was copied inside after_step
  internal::LateStager late_stager;
  internal::ArrivalKeeper keeper;
  bool update_announced = false;  // before_update() was called since the last after_step
  // before_update() or after_step() has begun and the next step boundary is not reached: memory is no step's.
  bool update_open = false;
  bool late_staging = true;    // false once an update came unannounced over an open late snapshot
  bool check_staging = false;  // HOLDFAST_CHECK_STAGING
  int late_checked = 0;        // late snapshots compared with live memory

  bool pressed = false;  // writes are hurried

  std::atomic<bool> evaluating = false;  // the writer's thread tells it to the ledger
  bool stopped_inside = false;           // a tick inside the scope said stop
  bool cut_short = false;                // the program said so
  bool disturbed = false;                // such an evaluation began without an image of the boundary
  internal::Staged boundary;             // the last step boundary, while an evaluation may disturb it
  internal::Staged last;                 // the state at a stop, kept for state_digest()

  // The newest snapshot submitted, as long as the writer holds it; its `snapshot` is apart.
  internal::Staged in_flight;
  std::weak_ptr<Snapshot> snapshot_in_flight;
  SaveHandle newest;       // of the newest snapshot submitted
  BegunSave newest_begun;  // the same, as far as it was begun here
  std::string end_reason;  // latched by finish()
  int end_code = 0;
  bool gave_up = false;   // finish() left before the writer was done
  bool left_out = false;  // finish() found no time for the last step

  Shelf shelf;
  std::unique_ptr<internal::ShareWriterThread> hand;  // of a rank other than 0 that shares; uses ranks
  std::unique_ptr<AsyncWriter> writer;                // its thread uses store, losses and clock
  std::unique_ptr<internal::NoticeWatch> watch;       // its thread uses all that is for any thread
};

}}  // namespace holdfast::v1
