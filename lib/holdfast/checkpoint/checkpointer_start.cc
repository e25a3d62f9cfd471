// From a start to the first step.
#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/checkpoint/internal/rank_start.h"
#include "holdfast/ledger/ledger_reader.h"

namespace holdfast { inline namespace v1 {

Resumed Checkpointer::State::resume() {
  require(Phase::constructed, "resume");
  stager.check_source();
  if (ranks) return ranks->leads() ? lead() : follow();
  start_alone({});
  return started.resumed;
}

void Checkpointer::State::start_alone(const internal::BeforeClaim& before_claim) {
  const int world_size = ranks ? ranks->world_size() : 1;
  started = internal::start_run(parts, finder, ledger, world_size, before_claim);
  internal::telling_errors([&] { begin_training(); },
                           [&](const Error& error) {
                             const bool superseded = error.exit_code() == ExitCode::superseded;
                             note_end(superseded ? RunPhase::superseded : RunPhase::failed, error.what(),
                                      static_cast<int>(error.exit_code()));
                           });
}

Resumed Checkpointer::State::lead() {
  internal::RankStart start(*ranks, parts, finder);
  std::unique_ptr<File> file;
  internal::telling_errors(
      [&] {
        start_alone([&](CheckpointStore& store, const Selection& found, const internal::Start& candidate) {
          start.ask_others(store, found, candidate);
        });
        file = start.file_to_share(started.resumed);
      },
      [&](const Error& error) { start.tell_failure(error); });
  try {
    start.tell_verdict(started, file.get());
    if (options.ranks.shared_write) find_ranks_on_volume();
    start.send(started, file.get());
    started.resumed.bit_exact = start.all_ready(started.resumed.bit_exact) && started.resumed.bit_exact;
  } catch (const Error& error) {
    abandon(error);
    throw;
  }
  return started.resumed;
}

Resumed Checkpointer::State::follow() {
  internal::RankStart start(*ranks, parts, finder);
  start.answer_rank_0();
  const internal::Verdict verdict = start.hear_verdict();
  started.record.attempt = verdict.attempt;
  ranks->together = std::make_unique<SharedWriter>(ranks->guarded, verdict.attempt, clock);
  if (verdict.shared_write) find_ranks_on_volume();
  std::shared_ptr<Arena> received = start.receive(verdict);
  internal::telling_errors(
      [&] {
        started = start.load(verdict, std::move(received));
        begin_training();
      },
      [&](const Error& error) { start.tell_not_ready(error); });
  started.resumed.bit_exact = start.all_ready(started.resumed.bit_exact) && started.resumed.bit_exact;
  return started.resumed;
}

void Checkpointer::State::begin_training() {
  loss = started.loss;
  evaluation_due = started.resumed.evaluation_due;
  measurements = Measurements(started.metrics);
  if (started.store) begin_writing();
  time.begin();
  book->open(started.resumed.step, time.boundary());
  phase = ranks ? Phase::together : Phase::running;
  watch->begin();
}

// Of a process that commits: alone, or rank 0.
void Checkpointer::State::begin_writing() {
  CheckpointStore& store = *started.store;
  stager.plan_ahead();
  if (started.image) stager.offer(std::move(started.image));
  policy = SavePolicy(options.every, clock.now(), started.resumed.step);

  RunState run;
  run.attempt = started.record.attempt;
  run.phase = RunPhase::running;
  run.step = started.resumed.step;
  run.durable_step = started.durable.step;
  run.checkpoint = started.durable.checkpoint;
  run.time = format_utc(clock.wall_now());
  try {
    store.write_run_state(run);
  } catch (const IoError& error) {  // retention after the next save may make the room that is missing
    log_warning("the run state could not be written: {}", error.what());
  }
  const Duration before =
      options.start.seams.clock == nullptr ? program_age().value_or(Duration::zero()) : Duration::zero();
  const SteadyTime now = clock.now();
  learn_lives();
  store.append_ledger(ledger.start_line({.attempt = run.attempt,
                                         .step = run.step,
                                         .from_attempt = started.from,
                                         .host = started.record.host,
                                         .boot = boot_id(),
                                         .startup = std::max(before, now - constructed),
                                         .resume = now - started.began}));
  ledger.observe([this] {
    Ledger::Sample sample{
        .step = book->step(), .evaluating = evaluating, .figures = book->figures(), .sources = {}};
    for (const auto& heard : monitor.sources()) {
      sample.sources.push_back({std::string(heard->name()), heard->figures()});
    }
    return sample;
  });
  if (ranks) ranks->together = std::make_unique<SharedWriter>(ranks->guarded, run.attempt, clock);
  writer = std::make_unique<AsyncWriter>(store, clock, losses, run,
                                         AsyncWriterOptions{.threads = options.writing.threads,
                                                            .write_limit = options.writing.write_limit,
                                                            .costs = &costs,
                                                            .ledger = &ledger});
  outlook.follow(*writer);
}

// What earlier attempts tell of their machines, for an interval that is chosen.
void Checkpointer::State::learn_lives() noexcept {
  if (!policy.automatic()) return;
  try {
    const auto run_directory = file_system.open_directory(options.directory, false);
    if (!run_directory) return;
    policy.learn(machine_lives(read_lives(*run_directory), boot_id()));
  } catch (const std::exception& error) {
    log_warning("the save interval is chosen without earlier attempts: {}", what_of(error));
  }
}

bool Checkpointer::State::note_end(RunPhase how, const char* reason, int exit_code) noexcept {
  try {
    const AsyncWriter::Acknowledged last = writer ? writer->last_acknowledged() : AsyncWriter::Acknowledged{};
    RunState run;
    run.attempt = started.record.attempt;
    run.phase = how;
    run.step = source.step();
    run.durable_step = last.step >= 0 ? last.step : started.durable.step;
    run.checkpoint = last.step >= 0 ? last.checkpoint : started.durable.checkpoint;
    run.reason = reason;
    run.exit_code = exit_code;
    run.time = format_utc(clock.wall_now());
    put_figures(run, book->figures());
    auto superseded = internal::write_end(*started.store, ledger, run);
    if (!superseded) return true;
    end_reason = std::move(*superseded);
    return false;
  } catch (const std::exception& error) {
    log_warning("the run state could not be written: {}", what_of(error));
  }
  return true;
}

}}  // namespace holdfast::v1
