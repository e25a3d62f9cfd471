// From an empty process to a training state and a claim on the run directory: read-only until everything that
// could be refused has been checked, because a claim ends the attempt that is running.
#include <sys/utsname.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/checkpointer_state.h"
#include "holdfast/io/volume_probe.h"

namespace holdfast::inline v1 {
namespace {

std::string host_name() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "";
}

// A name that the user typed: that nothing is there is a refusal, not a fault of the volume.
std::unique_ptr<File> open_given(FileSystem& file_system, const std::filesystem::path& path,
                                 const char* option) {
  try {
    if (auto file = file_system.open_file(path, OpenMode::read)) return file;
  } catch (const IoError& error) {
    if (error.code() != ENOENT && error.code() != ENOTDIR) throw;
  }
  throw RefusedError(option + path.native() + ": no such file");
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

}  // namespace

Resumed Checkpointer::State::resume() {
  require(Phase::constructed, "resume");
  wait_for_volume();
  const SteadyTime began = clock.now();
  const StartingPoint point = starting_point();
  store.emplace(file_system, clock,
                StoreOptions{.directory = options.directory,
                             // Whoever names a file elsewhere has chosen a start; nothing here is lost by it.
                             .allow_fresh = options.allow_fresh || !outside.empty(),
                             .start = point,
                             .keep = options.keep,
                             .read_back = options.read_back},
                verifier);

  // Another model or other options are refused here, before the claim: the attempt that runs goes on.
  Start start = candidate(store->preflight());
  check(start);
  if (start.fresh) start_fresh();
  record.host = host_name();

  record.attempt = store->claim();
  try {
    const Selection chosen = store->recover();
    if (!start.outside) {
      // What a predecessor committed until it was fenced off counts.
      Start now = candidate(chosen);
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
  }
}

void Checkpointer::State::wait_for_volume() {
  if (options.mount.empty()) {
    if (const auto warning = root_file_system_warning(file_system, options.directory)) log_warning(*warning);
    return;
  }
  const MountWait outcome =
      wait_for_mount(file_system, clock, options.mount,
                     {.limit = options.mount_wait, .go_on = [this](Duration) { return !should_stop(); }});
  if (outcome == MountWait::stopped) {
    throw Error("interrupted (" + reason_to_stop() + ") while waiting for " + options.mount.native() +
                    "; nothing was begun",
                static_cast<ExitCode>(options.exit_code_interrupted));
  }
  if (outcome == MountWait::timed_out) {
    throw IoError("mount", options.mount.native(), ENODEV,
                  "no volume was mounted there within " + format_duration(options.mount_wait) +
                      "; attach it and start again");
  }
}

// A number is a step. Anything else is a file: one of the run directory by its name or path, or one
// elsewhere.
StartingPoint Checkpointer::State::starting_point() {
  StartingPoint point;
  if (options.resume_from.empty()) return point;
  if (const auto step = parse_int(options.resume_from)) {
    if (*step < 0) throw UsageError("--resume-from " + options.resume_from + ": steps are not negative");
    point.step = *step;
    return point;
  }
  const std::filesystem::path file(options.resume_from);
  const auto directory = file_system.open_directory(options.directory, false);
  std::error_code ignored;
  const bool beneath = file.has_parent_path()
                           ? std::filesystem::weakly_canonical(file.parent_path(), ignored) ==
                                 std::filesystem::weakly_canonical(options.directory, ignored)
                           : directory && directory->status(file.native());
  if (beneath) {
    point.file = file.filename().native();
  } else {
    outside = file;
  }
  return point;
}

Checkpointer::State::Start Checkpointer::State::candidate(const Selection& selection) {
  if (!outside.empty()) return from_outside();
  Start start;
  if (!selection.newest) return start;
  const auto file = store->open(*selection.newest);
  if (!file) {
    throw IoError("open", (options.directory / selection.newest->name).native(), ENOENT,
                  "the checkpoint vanished while it was read; is another program deleting files there?");
  }
  auto loaded = verifier.load(*file);
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    throw IoError("read", (options.directory / selection.newest->name).native(), EIO,
                  "it was whole a moment ago and now is not (" + rejection->reason + "); check the volume");
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  start.fresh = false;
  start.step = index.step;
  start.name = selection.newest->name;
  start.record = run_record_of(index.attributes);
  start.attributes = std::move(index.attributes);
  start.snapshot = std::move(snapshot);
  return start;
}

Checkpointer::State::Start Checkpointer::State::from_outside() {
  const auto file = open_given(file_system, outside, "--resume-from ");
  auto loaded = verifier.load(*file);
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    throw RefusedError("--resume-from " + outside.native() + ": " + rejection->reason);
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  Start start;
  start.fresh = false;
  start.outside = true;
  start.step = index.step;
  start.name = outside.native();
  start.record = run_record_of(index.attributes);
  // Attempt numbers of another directory mean nothing here: an ancestry of them could name files that this
  // history never grew from.
  start.record.attempt = 0;
  start.record.ancestry.clear();
  start.attributes = std::move(index.attributes);
  start.snapshot = std::move(snapshot);
  return start;
}

void Checkpointer::State::check(const Start& start) {
  if (start.fresh) return;
  source.check(start.snapshot->layout->tensors(), start.attributes, options.overrides);
}

void Checkpointer::State::start_fresh() {
  if (source.step() != 0) {
    throw UsageError("the training state stands at step " + std::to_string(source.step()) +
                     " before a fresh start; call resume() before the first update");
  }
  stager.plan_ahead();  // names or sizes that cannot be stored are refused before the claim, too
  if (options.init_from.empty()) return;
  const auto file = open_given(file_system, options.init_from, "--init-from ");
  FileVerifier once(options.writer_threads);
  auto loaded = once.load(*file);
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    throw RefusedError("--init-from " + options.init_from.native() + ": " + rejection->reason);
  }
  source.load_weights(*std::get<FileVerifier::Loaded>(loaded).snapshot);
}

Resumed Checkpointer::State::become(Start start, Resumed resumed, SteadyTime began) {
  resumed.fresh = start.fresh;
  resumed.loss = std::numeric_limits<double>::quiet_NaN();
  if (start.fresh) {
    if (options.init_from.empty()) {
      log_info("fresh start in {}", options.directory);
    } else {
      log_info("fresh start in {} with the weights of {}", options.directory, options.init_from);
    }
  } else {
    if (!options.init_from.empty()) log_info("--init-from is for a fresh start: this run goes on instead");
    const auto differences = environment_differences(start.attributes, source.attributes());
    source.load(*start.snapshot, options.overrides);
    resumed.step = start.step;
    resumed.checkpoint = start.name;
    resumed.evaluation_due = start.record.evaluation_due;
    resumed.loss = start.record.loss;
    resumed.bit_exact = differences.empty();
    log_info("resuming from step {} ({}, {})", start.step, start.name, format_duration(clock.now() - began));
    if (!resumed.bit_exact) {
      log_warning("not bit-exact from here on, because the environment differs: {}", joined(differences));
    }
    expect_losses(start, resumed.bit_exact);
  }
  begin_run(start);
  return resumed;
}

void Checkpointer::State::expect_losses(const Start& start, bool bit_exact) {
  // With other options the next losses are meant to differ.
  if (start.outside || !options.overrides.empty()) return;
  std::map<std::int64_t, double> recorded = losses_in(store->read_ledger(start.record.attempt));
  if (start.record.overrides.empty()) {
    const Ancestry& ancestry = start.record.ancestry;
    for (auto it = ancestry.rbegin(); it != ancestry.rend(); ++it) {
      recorded.merge(losses_in(store->read_ledger(it->first)));
    }
  }
  receipt = Receipt(recorded, start.step, bit_exact);
}

void Checkpointer::State::begin_run(const Start& start) {
  // The verified state is in the source now; its memory is wanted for images.
  verifier.stop_keeping();
  if (!start.fresh) {
    if (!start.outside) record.ancestry = grown_from(start.record, start.step);
    record.grown_from = start.name;
    record.overrides = start.record.overrides;
    for (const std::string& name : options.overrides) {
      if (std::find(record.overrides.begin(), record.overrides.end(), name) == record.overrides.end()) {
        record.overrides.push_back(name);
      }
    }
    loss_was_told = !std::isnan(start.record.loss);
    loss = start.record.loss;
    evaluation_due = start.record.evaluation_due;
    if (!start.outside) started_from = {start.step, start.name, clock.now()};
  }
  start_step = start.step;
  start_is_safe = !start.outside;
  stager.plan_ahead();
  policy = SavePolicy(options.every, clock.now(), start_step);

  RunState run;
  run.attempt = record.attempt;
  run.phase = RunPhase::running;
  run.step = start_step;
  run.durable_step = started_from.step;
  run.checkpoint = started_from.checkpoint;
  run.host = record.host;
  run.time = format_utc(clock.wall_now());
  store->write_run_state(run);
  store->append_ledger(R"({"event":"start","attempt":)" + std::to_string(record.attempt) + R"(,"step":)" +
                       std::to_string(start_step) + R"(,"from_attempt":)" +
                       std::to_string(start.record.attempt) + "}");
  writer = std::make_unique<AsyncWriter>(*store, clock, losses, run,
                                         AsyncWriterOptions{.threads = options.writer_threads});
  phase = Phase::running;
}

// For people and wrappers: what cannot be written changes no outcome, except that a newer attempt is seen.
bool Checkpointer::State::note_end(RunPhase how, const std::string& reason, int exit_code) {
  const AsyncWriter::Acknowledged last = writer ? writer->last_acknowledged() : AsyncWriter::Acknowledged{};
  RunState run;
  run.attempt = record.attempt;
  run.phase = how;
  run.step = source.step();
  run.durable_step = last.step >= 0 ? last.step : started_from.step;
  run.checkpoint = last.step >= 0 ? last.checkpoint : started_from.checkpoint;
  run.reason = reason;
  run.exit_code = exit_code;
  run.host = record.host;
  run.time = format_utc(clock.wall_now());
  try {
    store->write_run_state(run);
  } catch (const SupersededError& error) {
    log_warning("{}; this attempt stops and leaves the directory alone", error.what());
    end_reason = error.what();
    return false;
  } catch (const Error& error) {
    log_warning("the run state could not be written: {}", error.what());
  }
  return true;
}

}  // namespace holdfast::inline v1
