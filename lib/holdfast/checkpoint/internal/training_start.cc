#include "holdfast/checkpoint/internal/training_start.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v1 { namespace internal {

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

}}}  // namespace holdfast::v1::internal
