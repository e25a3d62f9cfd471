// From an empty process to a training state and a claim on the run directory: read-only until everything that
// could be refused has been checked, because a claim ends the attempt that is running.
#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/ledger/loss_search.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v1 {
namespace {

// A predecessor is fenced off already: what is read here is short, whatever the run's history.
constexpr std::size_t kLedgersCompared = 8;

// A ledger that cannot be read costs the comparison, not the run.
std::map<std::int64_t, double> recorded_losses(FileSystem& file_system,
                                               const std::filesystem::path& directory,
                                               const std::string& name, std::int64_t step) {
  try {
    const auto run_directory = file_system.open_directory(directory, false);
    const auto status = run_directory ? run_directory->status(name) : std::nullopt;
    if (!status || status->kind != FileKind::regular) return {};
    if (const auto ledger = run_directory->open(name, OpenMode::read)) {
      return losses_after(*ledger, step, Receipt::kMostSteps);
    }
  } catch (const std::exception& error) {
    log_warning("{}; the run goes on without that ledger", what_of(error));
  }
  return {};
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

}  // namespace

Resumed Checkpointer::State::resume() {
  require(Phase::constructed, "resume");
  stager.check_source();
  if (!ranks) return resume_alone();
  return ranks->leads() ? lead() : follow();
}

Resumed Checkpointer::State::resume_alone() {
  require_sight();
  wait_for_volume();
  const SteadyTime began = clock.now();
  const StartingPoint point = starting_point();
  if (reading_ahead.valid()) reading_ahead.get();
  store.emplace(file_system, clock, store_options(point), verifier);

  // Another model or other options are refused here, before the claim: the attempt that runs goes on.
  const Selection found = store->preflight();
  Start start = candidate(found);
  check(start);
  if (ranks) ask_others(found, start);
  if (start.fresh) start_fresh();
  // Two states are never held: the verifier keeps this one and lets it go before it reads another, or reads
  // what lies in the run directory without keeping it.
  if (start.outside) {
    verifier.stop_keeping();
  } else {
    start.snapshot.reset();
  }
  record.host = host_name();
  try_record(start);

  // The claim makes what is missing: never beneath a mount point whose volume has gone away.
  if (!options.mount.empty() && !file_system.is_mount_point(options.mount)) {
    throw IoError("mount", options.mount.native(), ENODEV,
                  "the volume went away during the start; attach it and start again");
  }
  record.attempt = store->claim();
  try {
    const Selection chosen = store->recover();
    store->trial_commit();
    if (!start.outside) {
      // What a predecessor committed until it was fenced off counts.
      Start now = candidate(chosen);
      if (now.fresh && !start.fresh) {
        throw IoError("open", (options.directory / start.name).native(), ENOENT,
                      "the checkpoints seen a moment ago are gone; is the volume still attached?");
      }
      if (now.name != start.name) check(now);
      start = std::move(now);
    }
    Resumed resumed;
    for (const Skipped& skipped : chosen.skipped) {
      log_warning("skipped {}: {}", skipped.name, skipped.reason);
    }
    resumed.skipped = chosen.skipped;
    return become(std::move(start), std::move(resumed), began);
  } catch (const Error& error) {
    note_end(error.exit_code() == ExitCode::superseded ? RunPhase::superseded : RunPhase::failed,
             error.what(), static_cast<int>(error.exit_code()));
    throw;
  } catch (const std::bad_alloc&) {
    note_end(RunPhase::failed, kOutOfMemory, static_cast<int>(ExitCode::io_failed));
    throw;
  }
}

void Checkpointer::State::check(const Start& start) {
  if (start.fresh) return;
  source.check(internal::without_ranks(start.snapshot->layout->tensors()), start.attributes,
               options.start.overrides);
}

// Before load(), which takes over what was recorded. `accepted`: options that an override lets differ.
bool Checkpointer::State::promise_bits(const Start& start, const std::vector<std::string>& accepted) {
  const auto environment = differences_to(start);
  if (!environment.empty()) {
    log_warning("not bit-exact from here on, because the environment differs: {}", joined(environment));
  }
  if (!accepted.empty()) {
    log_warning(
        "not bit-exact from here on, because an override accepts other options than the recorded ones: {}",
        joined(accepted));
  }
  return environment.empty() && accepted.empty();
}

std::vector<std::string> Checkpointer::State::differences_to(const Start& start) {
  auto differences = environment_differences(start.attributes, source.attributes());
  if (start.record.world_size != record.world_size) {
    differences.push_back("world size: " + std::to_string(start.record.world_size) + " → " +
                          std::to_string(record.world_size));
  }
  return differences;
}

Resumed Checkpointer::State::become(Start start, Resumed resumed, SteadyTime began) {
  resumed.fresh = start.fresh;
  resumed.loss = std::numeric_limits<double>::quiet_NaN();
  if (start.fresh) {
    if (options.start.init_from.empty()) {
      log_info("fresh start in {}", options.directory);
    } else {
      log_info("fresh start in {} with the weights of {}", options.directory, options.start.init_from);
    }
  } else {
    if (!options.start.init_from.empty())
      log_info("init_from is for a fresh start: this run goes on instead");
    const auto accepted =
        accepted_differences(start.attributes, source.attributes(), options.start.overrides);
    resumed.bit_exact = promise_bits(start, accepted);
    source.load(*internal::share_of(0, start.snapshot), options.start.overrides);
    resumed.step = start.step;
    resumed.checkpoint = start.name;
    resumed.evaluation_due = start.record.evaluation_due;
    resumed.loss = start.record.loss.value_or(resumed.loss);
    log_info("resuming from step {} ({}, {})", start.step, start.name, format_duration(clock.now() - began));
    // With other options the next losses are meant to differ.
    if (accepted.empty()) expect_losses(start, resumed.bit_exact);
  }
  begin_run(std::move(start), began);
  return resumed;
}

void Checkpointer::State::expect_losses(const Start& start, bool bit_exact) {
  if (start.outside) return;
  std::vector<AttemptNumber> attempts{start.record.attempt};
  if (start.record.overrides.empty()) {
    const Ancestry& ancestry = start.record.ancestry;
    for (auto it = ancestry.rbegin(); it != ancestry.rend() && attempts.size() < kLedgersCompared; ++it) {
      attempts.push_back(it->first);
    }
  }
  std::map<std::int64_t, double> recorded;
  for (const AttemptNumber attempt : attempts) {
    if (recorded.size() >= Receipt::kMostSteps) break;
    recorded.merge(recorded_losses(file_system, options.directory, ledger_name(attempt), start.step));
  }
  receipt = Receipt(recorded, start.step, bit_exact);
}

// What every later checkpoint records about where this attempt began.
void Checkpointer::State::record_history(const Start& start) {
  if (!start.outside) record.ancestry = grown_from(start.record, start.step);
  record.grown_from = start.name;
  record.overrides = start.record.overrides;
  for (const std::string& name : options.start.overrides) {
    if (std::find(record.overrides.begin(), record.overrides.end(), name) == record.overrides.end()) {
      record.overrides.push_back(name);
    }
  }
}

// What would make every save fail is an error now, before the claim.
void Checkpointer::State::try_record(const Start& start) {
  const RunRecord before = record;
  if (!start.fresh) {
    record.metrics = start.record.metrics;
    record_history(start);
  }
  const RunRecord whole = std::exchange(record, before);
  stager.check_record(whole);
}

void Checkpointer::State::begin_run(Start start, SteadyTime resuming) {
  // The verified state is in the source now; its memory is wanted for images.
  verifier.stop_keeping();
  if (!start.fresh) {
    record_history(start);
    loss = start.record.loss;
    evaluation_due = start.record.evaluation_due;
    measurements = Measurements(start.record.metrics);
    if (!start.outside) started_from = {start.step, start.name, clock.now()};
  }
  start_step = start.step;
  // An older point that the user chose is a branch: until something of it is committed, the next start would
  // go back to the newest of the other one.
  const auto held = store->list();
  start_is_safe = start.fresh || (!held.empty() && held.front().name == start.name);
  if (!options.start.resume_from.empty() && !start_is_safe && !held.empty()) {
    log_warning(
        "resume_from begins again at step {}, although {} is there: a new branch, every time; leave "
        "the option out to go on from the newest",
        start_step, held.front().name);
  }
  stager.plan_ahead();
  if (start.snapshot) {
    std::shared_ptr<Arena> arena = start.snapshot->arena;
    start.snapshot.reset();
    stager.offer(std::move(arena));
  }
  policy = SavePolicy(options.every, clock.now(), start_step);

  RunState run;
  run.attempt = record.attempt;
  run.phase = RunPhase::running;
  run.step = start_step;
  run.durable_step = started_from.step;
  run.checkpoint = started_from.checkpoint;
  run.time = format_utc(clock.wall_now());
  try {
    store->write_run_state(run);
  } catch (const IoError& error) {  // retention after the next save may make the room that is missing
    log_warning("the run state could not be written: {}", error.what());
  }
  const Duration before =
      options.start.seams.clock == nullptr ? program_age().value_or(Duration::zero()) : Duration::zero();
  const SteadyTime now = clock.now();
  const Duration startup = std::max(before, now - constructed);
  learn_lives();
  store->append_ledger(ledger.start_line({.attempt = record.attempt,
                                          .step = start_step,
                                          .from_attempt = start.record.attempt,
                                          .host = record.host,
                                          .boot = boot_id(),
                                          .startup = startup,
                                          .resume = now - resuming}));
  ledger.observe([this] {
    Ledger::Sample sample{
        .step = book->step(), .evaluating = evaluating, .figures = book->figures(), .sources = {}};
    for (const auto& source : monitor.sources()) {
      sample.sources.push_back({std::string(source->name()), source->figures()});
    }
    return sample;
  });
  if (ranks) ranks->together = std::make_unique<SharedWriter>(ranks->guarded, record.attempt, clock);
  writer = std::make_unique<AsyncWriter>(*store, clock, losses, run,
                                         AsyncWriterOptions{.threads = options.writing.threads,
                                                            .write_limit = options.writing.write_limit,
                                                            .costs = &costs,
                                                            .ledger = &ledger});
  outlook.follow(*writer);
  boundary_time = clock.now();
  book->open(start_step, boundary_time);
  phase = ranks ? Phase::together : Phase::running;
  watch->begin();
}

// What earlier attempts tell of their machines, for an interval that is chosen. `startup`: the age of this
// process.
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

void Checkpointer::State::tell_end(const RunState& run) noexcept {
  try {
    ledger.end({.phase = run.phase,
                .exit_code = run.exit_code,
                .step = run.step,
                .durable_step = run.durable_step,
                .reason = run.reason},
               [this](const std::string& line) { store->append_ledger(line); });
  } catch (const std::exception& error) {
    log_debug("the ledger does not say how it ended: {}", what_of(error));
  }
}

// For people and wrappers: what cannot be written changes no outcome, except that a newer attempt is seen.
bool Checkpointer::State::note_end(RunPhase how, const char* reason, int exit_code) noexcept {
  try {
    const AsyncWriter::Acknowledged last = writer ? writer->last_acknowledged() : AsyncWriter::Acknowledged{};
    RunState run;
    run.attempt = record.attempt;
    run.phase = how;
    run.step = source.step();
    run.durable_step = last.step >= 0 ? last.step : started_from.step;
    run.checkpoint = last.step >= 0 ? last.checkpoint : started_from.checkpoint;
    run.reason = reason;
    run.exit_code = exit_code;
    run.time = format_utc(clock.wall_now());
    put_figures(run, book->figures());
    tell_end(run);
    store->write_run_state(run);
  } catch (const SupersededError& error) {
    log_warning("{}; this attempt stops and leaves the directory alone", error.what());
    end_reason = text_or_out_of_memory([&] { return std::string(error.what()); });
    return false;
  } catch (const std::exception& error) {
    log_warning("the run state could not be written: {}", what_of(error));
  }
  return true;
}

}}  // namespace holdfast::v1
