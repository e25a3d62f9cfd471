#include "holdfast/checkpoint/internal/start/training_start.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/snapshot/shared_arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void TrainingStart::require_open(const char* call) const {
  const std::string name = std::string("Checkpointer::") + call + "()";
  if (end_.over()) throw UsageError(name + " after finish()");
  if (begun_) throw UsageError(name + " after resume()");
}

void TrainingStart::claim(int world_size, const BeforeClaim& before_claim) {
  run_.started = start_run(run_, wait_, finder_, standby_, world_size, before_claim);
  others_load_ = world_size > 1;
  telling_errors([&] { begin(); },
                 [&](const Error& error) {
                   const bool superseded = error.exit_code() == ExitCode::superseded;
                   end_.tell(superseded ? RunPhase::superseded : RunPhase::failed, error.what(),
                             static_cast<int>(error.exit_code()));
                 });
}

void TrainingStart::begin() {
  run_.started.form = run_.source.hold(Hold::form);
  boundary_.begin();
  saves_.begin(Measurements(run_.started.metrics));
  if (run_.started.store) begin_writing();
  run_.time.begin();
  run_.book->open(run_.started.resumed.step, run_.time.boundary());
  driver_.begin();
  if (run_.started.store) learn_lives();
  begun_ = true;
  driver_.listener().begin();
}

void TrainingStart::begin_writing() {
  StartedRun& started = run_.started;
  run_.stager.plan_ahead();
  // After the plan, because the pool takes an image only if it fits one.
  // Memory that other ranks map now is not the next save's. It has small pages as well.
  if (started.image && !is_shared(started.image)) run_.stager.offer(std::move(started.image));

  RunState state;
  state.attempt = started.record.attempt;
  state.phase = RunPhase::running;
  state.step = started.resumed.step;
  state.durable_step = started.durable.step;
  state.checkpoint = started.durable.checkpoint;
  state.time = format_utc(run_.clock.wall_now());
  try {
    started.store->write_run_state(state);
  } catch (const IoError& error) {  // perhaps a full disk, where the next save makes room
    log_warning("the run state could not be written: {}", error.what());
  }
  run_.ledger.start(start_figures());
  try {
    run_.ledger.drain([&](const std::string& line) { started.store->write_ledger(line); });
  } catch (const std::exception& error) {  // the writer writes it
    log_debug("the ledger waits: {}", what_of(error));
  }
  // Before the writer exists, whose thread calls it.
  run_.ledger.observe([this] { return sample(); });
  run_.writer =
      std::make_unique<AsyncWriter>(*started.store, run_.clock, run_.losses, state,
                                    AsyncWriterOptions{.threads = run_.options.writing.threads,
                                                       .write_limit = run_.options.writing.write_limit,
                                                       .costs = &run_.costs,
                                                       .listener = &driver_,
                                                       .ledger = &run_.ledger,
                                                       .before = &run_.before_commit});
  // A test counts the operations on its own file system.
  const bool is_real = &run_.file_system == &FileSystem::real();
  if (is_real || !run_.options.start.home.empty()) {
    home_.start(run_.file_system, run_.options.directory,
                [this](const HomeRecord& record) { hear_home(record); });
  }
  if (!is_real) return;
  standby_watch_.start(run_.file_system, run_.options.directory,
                       [this](bool ready) { driver_.standby_is_ready(ready); });
  heartbeat_.start(run_.file_system, run_.options.directory, state.attempt, run_.clock,
                   [this](RunProgress& now) { return tell_progress(now); });
}

// The lives of earlier attempts' machines, for an automatic interval.
void TrainingStart::learn_lives() noexcept {
  const bool automatic = std::any_of(run_.options.every.begin(), run_.options.every.end(),
                                     [](const SaveEvery& every) { return every.chosen.has_value(); });
  // Only an automatic interval is worth reading the ledgers of all attempts.
  if (!automatic) return;
  try {
    const auto run_directory = run_.file_system.open_directory(run_.options.directory, false);
    if (!run_directory) return;
    driver_.learn_lives(machine_lives(read_lives(*run_directory, kLedgerEnds), boot_id()));
  } catch (const std::exception& error) {
    log_warning("the save interval is chosen without earlier attempts: {}", what_of(error));
  }
}

LedgerStart TrainingStart::start_figures() const {
  const StartedRun& started = run_.started;
  // With a clock of the program's own (a test), the age of the process is unknown.
  const Duration before =
      run_.options.start.seams.clock == nullptr ? program_age().value_or(Duration::zero()) : Duration::zero();
  const SteadyTime now = run_.clock.now();
  // An unknown age counts as 0, but the start has taken at least the time since this object was made.
  return {.attempt = started.record.attempt,
          .step = started.resumed.step,
          .from_attempt = started.from,
          .host = started.record.host,
          .boot = boot_id(),
          .startup = std::max(before, now - constructed_),
          .resume = now - started.began};
}

// Called on the heartbeat's thread.
bool TrainingStart::tell_progress(RunProgress& now) const {
  const AsyncWriter& writer = *run_.writer;
  if (writer.superseded()) return false;
  const auto ms = [](Duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  const RunFigures figures = run_.book->figures();
  const NextSave next = driver_.next_save();
  const std::optional<Duration> writing = writer.writing_for();
  now.phase = others_load_            ? TrainingPhase::starting
              : run_.ledger.pausing() ? TrainingPhase::pausing
              : driver_.evaluating()  ? TrainingPhase::evaluating
                                      : TrainingPhase::training;
  now.step = run_.book->step();
  now.last_step = heartbeat_.last_step();
  now.loss = run_.losses.newest();
  now.durable_step = run_.newest_durable();
  now.risk_steps = figures.risk_steps;
  now.risk_ms = ms(figures.risk_time);
  if (figures.home) {
    now.home_step = figures.home->step;
    now.home_risk_steps = figures.home->risk_steps;
    now.home_risk_ms = ms(figures.home->risk_time);
  }
  now.writing_ms = writing ? ms(*writing) : -1;
  // At least 0, because a save that is overdue must not read as none, which is -1.
  now.next_save_ms = next.at ? std::max<std::int64_t>(ms(*next.at - run_.clock.now()), 0) : -1;
  now.next_save_step = next.step.value_or(-1);
  now.save_interval_ms = next.interval ? ms(*next.interval) : -1;
  const auto left = driver_.time_left();
  now.end_unix_ms = left ? ms((run_.clock.wall_now() + *left).time_since_epoch()) : -1;
  now.saves = figures.durable;
  now.saved_bytes = figures.bytes;
  now.waited_ms = ms(figures.blocked);
  now.last_bytes = figures.last.bytes;
  now.last_save_ms = ms(figures.last.write + figures.last.commit);
  now.failure = writer.failure().value_or(std::string());
  return true;
}

// Called on the home watch's thread. Other lives' checkpoints count for the planner, and not for the ledger.
void TrainingStart::hear_home(const HomeRecord& record) const {
  const AttemptNumber own = run_.started.record.attempt;
  const bool ours = record.newest && record.newest->attempt == own;
  const std::optional<HomeFigures> before = run_.book->figures().home;
  std::int64_t copying = -1;
  if (const auto id = parse_checkpoint_name(record.copying)) copying = id->attempt == own ? id->step : 0;
  const Duration took = std::chrono::milliseconds(record.took_ms);
  // A later step of another branch covers nothing of this one.
  const bool counts = record.newest && (ours || record.newest->step <= run_.started.resumed.step);
  const HomeNews news{.step = counts ? record.newest->step : -1,
                      .of_this_attempt = ours,
                      .took = took,
                      .failing = !record.failure.empty() || record.superseded,
                      .copying = copying};
  // The planner must not count on a way home that another machine has taken.
  run_.costs.home_takes(record.took_ms > 0 && !record.superseded ? std::optional(took) : std::nullopt);
  if (ours && (!before || before->step != news.step)) {
    run_.ledger.note(run_.ledger.stamped("home").number("step", news.step).milliseconds("took_ms", took));
  }
  if (news.failing && !(before && before->failing)) {
    const std::string why =
        record.superseded ? "another machine has taken the second place over" : record.failure;
    run_.ledger.note(run_.ledger.stamped("home fails").text("why", why));
  } else if (!news.failing && before && before->failing) {
    LedgerLine line = run_.ledger.stamped("home works");
    run_.ledger.note(line);
  }
  // Last, because it wakes SaveHandle::wait_home(): who waited finds all of it in the ledger.
  run_.book->home(news);
}

// Called on the writer's thread.
Ledger::Sample TrainingStart::sample() const {
  Ledger::Sample sample{.step = run_.book->step(),
                        .phase = others_load_           ? "start"
                                 : driver_.evaluating() ? "evaluation"
                                                        : "",
                        .figures = run_.book->figures(),
                        .sources = {}};
  for (const auto& heard : run_.monitor.sources()) {
    sample.sources.push_back({std::string(heard->name()), heard->figures()});
  }
  return sample;
}

}}}  // namespace holdfast::v0_2::internal
