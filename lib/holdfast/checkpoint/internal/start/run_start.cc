#include "holdfast/checkpoint/internal/start/run_start.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/end_record.h"
#include "holdfast/ledger/loss_search.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The predecessor is fenced off already, so this must be quick, however long the run's history is.
constexpr std::size_t kLedgersCompared = 8;

// If a ledger cannot be read, the comparison is skipped, and the run goes on.
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

Receipt expected_losses(Run& run, const Start& start, bool bit_exact) {
  std::vector<AttemptNumber> attempts{start.record.attempt};
  // After an override losses may differ for good reason, so older attempts are not compared.
  if (start.record.overrides.empty()) {
    const Ancestry& ancestry = start.record.ancestry;
    for (auto it = ancestry.rbegin(); it != ancestry.rend() && attempts.size() < kLedgersCompared; ++it) {
      attempts.push_back(it->first);
    }
  }
  std::map<std::int64_t, double> recorded;
  for (const AttemptNumber attempt : attempts) {
    if (recorded.size() >= Receipt::kMostSteps) break;
    // merge() keeps what is there: the newest attempt's record of a step counts.
    recorded.merge(recorded_losses(run.file_system, run.options.directory, ledger_name(attempt), start.step));
  }
  return {recorded, start.step, bit_exact};
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// Before load(), which overwrites the options with the recorded ones. `accepted`: differences that an
// override allows.
bool promise_bits(Run& run, const Start& start, int world_size, const std::vector<std::string>& accepted) {
  auto environment = environment_differences(start.attributes, run.source.attributes());
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
void record_history(Run& run, const Start& start, RunRecord& record) {
  if (!start.outside) record.ancestry = grown_from(start.record, start.step);
  record.grown_from = start.name;
  record.branches = start.record.branches;
  if (!start.branch.empty()) record.branches.push_back(start.branch);
  record.overrides = start.record.overrides;
  for (const std::string& name : run.options.start.overrides) {
    if (std::find(record.overrides.begin(), record.overrides.end(), name) == record.overrides.end()) {
      record.overrides.push_back(name);
    }
  }
}

// A fault that would make every save fail is an error now, before the claim.
void try_record(Run& run, const Start& start, RunRecord record) {
  if (!start.fresh) {
    record.metrics = start.record.metrics;
    record_history(run, start, record);
  }
  run.stager.check_record(record);
}

void begin_fresh(Run& run) {
  if (run.options.start.init_from.empty()) {
    log_info("fresh start in {}", run.options.directory);
  } else {
    log_info("fresh start in {} with the weights of {}", run.options.directory, run.options.start.init_from);
  }
}

void go_on(Run& run, const Start& start, StartedRun& started) {
  if (!run.options.start.init_from.empty()) {
    log_info("init_from is for a fresh start: this run goes on instead");
  }
  const bool same_options = load_state(run, start, 0, started);
  if (!start.once_more.empty()) {
    log_info(
        "resume_from {}: the newest checkpoint has grown from there, so the run goes on with it; to go back "
        "there once more, {}",
        run.options.start.resume_from, start.once_more);
  }
  log_info("resuming from step {} ({}, {})", start.step, start.name,
           format_duration(run.clock.now() - started.began));
  started.resumed.branch = !start.branch.empty();
  record_history(run, start, started.record);
  if (start.outside) return;
  // With other options, different losses are expected.
  if (same_options) started.receipt = expected_losses(run, start, started.resumed.bit_exact);
  started.durable = {start.step, start.name, run.clock.now()};
}

// An older starting point is a branch. Until the branch has a commit, the next start would resume from the
// newest checkpoint of the other branch.
bool next_start_is_here(Run& run, const Start& start, CheckpointStore& store) {
  const auto held = store.list();
  const bool here = start.fresh || (!held.empty() && held.front().name == start.name);
  if (!run.options.start.resume_from.empty() && !here && !held.empty()) {
    log_warning(
        "resume_from starts again from step {}, although {} exists: a new branch begins, and later starts "
        "with the same option go on with it",
        start.step, held.front().name);
  }
  return here;
}

void become(Run& run, StartFinder& finder, Start start, StartedRun& started) {
  CheckpointStore& store = *started.store;
  Selection chosen = store.recover();
  store.trial_commit();
  if (!start.outside || chosen.has_grown) {
    // Includes commits that a predecessor made until it was fenced off.
    Start now = finder.candidate(store, chosen);
    if (now.fresh && !start.fresh) {
      throw IoError("open", (run.options.directory / start.name).native(), ENOENT,
                    "the checkpoints seen a moment ago are gone; is the volume still attached?");
    }
    if (now.name != start.name) finder.check(now);
    start = std::move(now);
  }
  for (const Skipped& skipped : chosen.skipped) log_warning("skipped {}: {}", skipped.name, skipped.reason);
  started.resumed.skipped = std::move(chosen.skipped);
  started.from = start.record.attempt;
  start.fresh ? begin_fresh(run) : go_on(run, start, started);
  // The state is in the source now, so its memory is free for images.
  run.verifier.stop_keeping();
  started.is_safe = next_start_is_here(run, start, store);
  if (start.snapshot) started.image = start.snapshot->arena;
  started.index = start.index;
}

void tell_failure(Run& run, const StartedRun& started, const Error& error) noexcept {
  try {
    const bool superseded = error.exit_code() == ExitCode::superseded;
    write_end(*started.store, run.ledger,
              {.attempt = started.record.attempt,
               .phase = superseded ? RunPhase::superseded : RunPhase::failed,
               .step = run.step(),
               .reason = error.what(),
               .exit_code = static_cast<int>(error.exit_code()),
               .time = format_utc(run.clock.wall_now())});
  } catch (const std::bad_alloc& no_memory) {
    log_warning("the run state could not be written: {}", what_of(no_memory));
  }
}

// True if another start has claimed `number`, so that a standby waits again.
bool was_taken(Run& run, AttemptNumber number) {
  const auto directory = run.file_system.open_directory(run.options.directory, false);
  return number != 0 && directory && highest_attempt(*directory) >= number;
}

// nullopt: `only`, unless 0 the number to claim, was taken by another start.
std::optional<StartedRun> try_start(Run& run, const StartWait& wait, StartFinder& finder, int world_size,
                                    const BeforeClaim& before_claim, AttemptNumber only) {
  StartedRun started{.began = run.clock.now()};
  started.record.world_size = world_size;
  // A fresh start has no loss, and a checkpoint may record none.
  started.resumed.loss = std::numeric_limits<double>::quiet_NaN();
  started.store = finder.open_store();

  // Another model or other options are refused here, before the claim, so that a running attempt goes on.
  const Selection found = started.store->preflight();
  Start start = finder.candidate(*started.store, found);
  finder.check(start);
  if (before_claim) before_claim(*started.store, found, start);
  if (start.fresh) finder.start_fresh(world_size > 1);
  // Two states are never held: the verifier keeps this one and lets it go before it reads another, or reads
  // what lies in the run directory without keeping it.
  if (start.outside) {
    run.verifier.stop_keeping();
  } else {
    start.snapshot.reset();
  }
  started.record.host = host_name();
  try_record(run, start, started.record);
  // Right before the claim, which would otherwise lie in the empty mount point.
  wait.check_mounted();

  try {
    started.record.attempt = started.store->claim({}, only);
  } catch (const RefusedError&) {
    if (!was_taken(run, only)) throw;
    log_info("another start has taken the run over; this standby goes on waiting");
    return std::nullopt;
  }
  telling_errors([&] { become(run, finder, std::move(start), started); },
                 [&](const Error& error) { tell_failure(run, started, error); });
  return started;
}

}  // namespace

StartedRun start_run(Run& run, StartWait& wait, StartFinder& finder, StandbyWait& standby, int world_size,
                     const BeforeClaim& before_claim) {
  wait.await_sight();
  wait.await_volume();
  finder.end_reading_ahead();
  for (;;) {
    const AttemptNumber only = standby.await();
    if (!standby.stands_by()) wait.await_home();
    auto started = try_start(run, wait, finder, world_size, before_claim, only);
    if (started) return *std::move(started);
  }
}

bool load_state(Run& run, const Start& start, int rank, StartedRun& started) {
  const Overrides& overrides = run.options.start.overrides;
  const auto accepted = accepted_differences(start.attributes, run.source.attributes(), overrides);
  started.resumed.bit_exact = promise_bits(run, start, started.record.world_size, accepted);
  // A rank that has no state of its own in the file derives it from rank 0's.
  const bool derives = rank > 0 && !has_own_of(rank, start.snapshot->layout->tensors());
  run.source.load(*share_of(rank, start.snapshot), {.overrides = overrides, .new_rank = derives ? rank : 0});
  started.resumed.fresh = false;
  started.resumed.step = start.step;
  started.resumed.checkpoint = start.name;
  started.resumed.evaluation_due = start.record.evaluation_due;
  started.resumed.loss = start.record.loss.value_or(started.resumed.loss);
  started.loss = start.record.loss;
  started.after_loop = start.record.after_loop;
  started.metrics = start.record.metrics;
  return accepted.empty();
}

}}}  // namespace holdfast::v0_2::internal
