#include "holdfast/checkpoint/internal/run_start.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/ledger/loss_search.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v1 { namespace internal {
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

Receipt expected_losses(const StartParts& parts, const Start& start, bool bit_exact) {
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
    recorded.merge(
        recorded_losses(parts.file_system, parts.options.directory, ledger_name(attempt), start.step));
  }
  return {recorded, start.step, bit_exact};
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// Before load(), which takes over what was recorded. `accepted`: options that an override lets differ.
bool promise_bits(const StartParts& parts, const Start& start, int world_size,
                  const std::vector<std::string>& accepted) {
  auto environment = environment_differences(start.attributes, parts.source.attributes());
  if (start.record.world_size != world_size) {
    environment.push_back("world size: " + std::to_string(start.record.world_size) + " → " +
                          std::to_string(world_size));
  }
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

// What every later checkpoint records about where this attempt began.
void record_history(const StartParts& parts, const Start& start, RunRecord& record) {
  if (!start.outside) record.ancestry = grown_from(start.record, start.step);
  record.grown_from = start.name;
  record.overrides = start.record.overrides;
  for (const std::string& name : parts.options.start.overrides) {
    if (std::find(record.overrides.begin(), record.overrides.end(), name) == record.overrides.end()) {
      record.overrides.push_back(name);
    }
  }
}

// What would make every save fail is an error now, before the claim.
void try_record(const StartParts& parts, const Start& start, RunRecord record) {
  if (!start.fresh) {
    record.metrics = start.record.metrics;
    record_history(parts, start, record);
  }
  parts.stager.check_record(record);
}

void begin_fresh(const StartParts& parts) {
  if (parts.options.start.init_from.empty()) {
    log_info("fresh start in {}", parts.options.directory);
  } else {
    log_info("fresh start in {} with the weights of {}", parts.options.directory,
             parts.options.start.init_from);
  }
}

void go_on(const StartParts& parts, const Start& start, StartedRun& run) {
  if (!parts.options.start.init_from.empty()) {
    log_info("init_from is for a fresh start: this run goes on instead");
  }
  const bool same_options = load_state(parts, start, 0, run);
  log_info("resuming from step {} ({}, {})", start.step, start.name,
           format_duration(parts.clock.now() - run.began));
  record_history(parts, start, run.record);
  if (start.outside) return;
  // With other options the next losses are meant to differ.
  if (same_options) run.receipt = expected_losses(parts, start, run.resumed.bit_exact);
  run.durable = {start.step, start.name, parts.clock.now()};
}

// An older point that the user chose is a branch: until something of it is committed, the next start would
// go back to the newest of the other one.
bool next_start_is_here(const StartParts& parts, const Start& start, CheckpointStore& store) {
  const auto held = store.list();
  const bool here = start.fresh || (!held.empty() && held.front().name == start.name);
  if (!parts.options.start.resume_from.empty() && !here && !held.empty()) {
    log_warning(
        "resume_from begins again at step {}, although {} is there: a new branch, every time; leave "
        "the option out to go on from the newest",
        start.step, held.front().name);
  }
  return here;
}

void become(const StartParts& parts, StartFinder& finder, Start start, StartedRun& run) {
  CheckpointStore& store = *run.store;
  Selection chosen = store.recover();
  store.trial_commit();
  if (!start.outside) {
    // What a predecessor committed until it was fenced off counts.
    Start now = finder.candidate(store, chosen);
    if (now.fresh && !start.fresh) {
      throw IoError("open", (parts.options.directory / start.name).native(), ENOENT,
                    "the checkpoints seen a moment ago are gone; is the volume still attached?");
    }
    if (now.name != start.name) finder.check(now);
    start = std::move(now);
  }
  for (const Skipped& skipped : chosen.skipped) log_warning("skipped {}: {}", skipped.name, skipped.reason);
  run.resumed.skipped = std::move(chosen.skipped);
  run.from = start.record.attempt;
  start.fresh ? begin_fresh(parts) : go_on(parts, start, run);
  // The verified state is in the source now; its memory is wanted for images.
  parts.verifier.stop_keeping();
  run.is_safe = next_start_is_here(parts, start, store);
  if (start.snapshot) run.image = start.snapshot->arena;
}

void tell_failure(const StartParts& parts, Ledger& ledger, const StartedRun& run,
                  const Error& error) noexcept {
  try {
    const bool superseded = error.exit_code() == ExitCode::superseded;
    write_end(*run.store, ledger,
              {.attempt = run.record.attempt,
               .phase = superseded ? RunPhase::superseded : RunPhase::failed,
               .step = parts.source.step(),
               .reason = error.what(),
               .exit_code = static_cast<int>(error.exit_code()),
               .time = format_utc(parts.clock.wall_now())});
  } catch (const std::bad_alloc& no_memory) {
    log_warning("the run state could not be written: {}", what_of(no_memory));
  }
}

}  // namespace

StartedRun start_run(const StartParts& parts, StartFinder& finder, Ledger& ledger, int world_size,
                     const BeforeClaim& before_claim) {
  finder.await_sight();
  finder.await_volume();
  StartedRun run{.began = parts.clock.now()};
  run.record.world_size = world_size;
  run.resumed.loss = std::numeric_limits<double>::quiet_NaN();
  run.store = finder.open_store();

  // Another model or other options are refused here, before the claim: the attempt that runs goes on.
  const Selection found = run.store->preflight();
  Start start = finder.candidate(*run.store, found);
  finder.check(start);
  if (before_claim) before_claim(*run.store, found, start);
  if (start.fresh) finder.start_fresh();
  // Two states are never held: the verifier keeps this one and lets it go before it reads another, or reads
  // what lies in the run directory without keeping it.
  if (start.outside) {
    parts.verifier.stop_keeping();
  } else {
    start.snapshot.reset();
  }
  run.record.host = host_name();
  try_record(parts, start, run.record);
  finder.check_mounted();

  run.record.attempt = run.store->claim();
  telling_errors([&] { become(parts, finder, std::move(start), run); },
                 [&](const Error& error) { tell_failure(parts, ledger, run, error); });
  return run;
}

bool load_state(const StartParts& parts, const Start& start, int rank, StartedRun& run) {
  const Overrides& overrides = parts.options.start.overrides;
  const auto accepted = accepted_differences(start.attributes, parts.source.attributes(), overrides);
  run.resumed.bit_exact = promise_bits(parts, start, run.record.world_size, accepted);
  const bool derives = rank > 0 && !has_own_of(rank, start.snapshot->layout->tensors());
  parts.source.load(*share_of(rank, start.snapshot), overrides);
  if (derives) parts.source.derive_own(rank);
  run.resumed.fresh = false;
  run.resumed.step = start.step;
  run.resumed.checkpoint = start.name;
  run.resumed.evaluation_due = start.record.evaluation_due;
  run.resumed.loss = start.record.loss.value_or(run.resumed.loss);
  run.loss = start.record.loss;
  run.metrics = start.record.metrics;
  return accepted.empty();
}

std::optional<std::string> write_end(CheckpointStore& store, Ledger& ledger, const RunState& run) noexcept {
  try {
    ledger.end({.phase = run.phase,
                .exit_code = run.exit_code,
                .step = run.step,
                .durable_step = run.durable_step,
                .reason = run.reason},
               [&](const std::string& line) { store.append_ledger(line); });
  } catch (const std::exception& error) {
    log_debug("the ledger does not say how it ended: {}", what_of(error));
  }
  try {
    store.write_run_state(run);
  } catch (const SupersededError& error) {
    log_warning("{}; this attempt stops and leaves the directory alone", error.what());
    return text_or_out_of_memory([&] { return std::string(error.what()); });
  } catch (const std::exception& error) {
    log_warning("the run state could not be written: {}", what_of(error));
  }
  return std::nullopt;
}

}}}  // namespace holdfast::v1::internal
