#include "holdfast/checkpoint/internal/training_start.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void TrainingStart::claim(int world_size, const BeforeClaim& before_claim) {
  run_.started = start_run(run_, wait_, finder_, world_size, before_claim);
  telling_errors([&] { begin(); },
                 [&](const Error& error) {
                   const bool superseded = error.exit_code() == ExitCode::superseded;
                   end_.tell(superseded ? RunPhase::superseded : RunPhase::failed, error.what(),
                             static_cast<int>(error.exit_code()));
                 });
}

void TrainingStart::begin() {
  boundary_.begin();
  saves_.measurements() = Measurements(run_.started.metrics);
  if (run_.started.store) begin_writing();
  run_.time.begin();
  run_.book->open(run_.started.resumed.step, run_.time.boundary());
  begun_ = true;
  listener_.begin();
}

void TrainingStart::begin_writing() {
  StartedRun& started = run_.started;
  run_.stager.plan_ahead();
  if (started.image) run_.stager.offer(std::move(started.image));
  schedule_.begin();

  RunState state;
  state.attempt = started.record.attempt;
  state.phase = RunPhase::running;
  state.step = started.resumed.step;
  state.durable_step = started.durable.step;
  state.checkpoint = started.durable.checkpoint;
  state.time = format_utc(run_.clock.wall_now());
  try {
    started.store->write_run_state(state);
  } catch (const IoError& error) {  // perhaps a full disk, where retention after the next save frees space
    log_warning("the run state could not be written: {}", error.what());
  }
  const std::string line = start_line();  // made before the ledgers of earlier attempts are read
  schedule_.learn_lives();
  started.store->append_ledger(line);
  run_.ledger.observe([this] { return sample(); });
  run_.writer =
      std::make_unique<AsyncWriter>(*started.store, run_.clock, run_.losses, state,
                                    AsyncWriterOptions{.threads = run_.options.writing.threads,
                                                       .write_limit = run_.options.writing.write_limit,
                                                       .costs = &run_.costs,
                                                       .ledger = &run_.ledger});
  run_.outlook.follow(*run_.writer);
  // A test counts the operations on its own file system.
  if (&run_.file_system != &FileSystem::real()) return;
  heartbeat_.start(run_.file_system, run_.options.directory, state.attempt, run_.clock,
                   [this](RunProgress& now) { return tell_progress(now); });
}

std::string TrainingStart::start_line() const {
  const StartedRun& started = run_.started;
  // With a clock of the program's own (a test), the age of the process is unknown.
  const Duration before =
      run_.options.start.seams.clock == nullptr ? program_age().value_or(Duration::zero()) : Duration::zero();
  const SteadyTime now = run_.clock.now();
  return run_.ledger.start_line({.attempt = started.record.attempt,
                                 .step = started.resumed.step,
                                 .from_attempt = started.from,
                                 .host = started.record.host,
                                 .boot = boot_id(),
                                 .startup = std::max(before, now - constructed_),
                                 .resume = now - started.began});
}

// Called on the heartbeat's thread.
bool TrainingStart::tell_progress(RunProgress& now) const {
  const AsyncWriter& writer = *run_.writer;
  if (writer.superseded()) return false;
  const auto ms = [](Duration time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  const RunFigures figures = run_.book->figures();
  const SaveSchedule::Next next = schedule_.next();
  const std::optional<Duration> writing = writer.writing_for();
  now.phase = run_.ledger.pausing()   ? TrainingPhase::pausing
              : evaluation_.running() ? TrainingPhase::evaluating
                                      : TrainingPhase::training;
  now.step = run_.book->step();
  now.last_step = heartbeat_.last_step();
  now.loss = run_.losses.newest();
  now.durable_step = run_.newest_durable();
  now.risk_steps = figures.risk_steps;
  now.risk_ms = ms(figures.risk_time);
  now.writing_ms = writing ? ms(*writing) : -1;
  now.next_save_ms = next.at ? std::max<std::int64_t>(ms(*next.at - run_.clock.now()), 0) : -1;
  now.next_save_step = next.step.value_or(-1);
  now.saves = figures.durable;
  now.saved_bytes = figures.bytes;
  now.waited_ms = ms(figures.blocked);
  now.last_bytes = figures.last.bytes;
  now.last_save_ms = ms(figures.last.write + figures.last.commit);
  now.failure = writer.failure().value_or(std::string());
  return true;
}

// Called on the writer's thread.
Ledger::Sample TrainingStart::sample() const {
  Ledger::Sample sample{.step = run_.book->step(),
                        .evaluating = evaluation_.running(),
                        .figures = run_.book->figures(),
                        .sources = {}};
  for (const auto& heard : run_.monitor.sources()) {
    sample.sources.push_back({std::string(heard->name()), heard->figures()});
  }
  return sample;
}

}}}  // namespace holdfast::v0_2::internal
