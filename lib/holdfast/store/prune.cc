#include "holdfast/store/prune.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/base/log.h"
#include "holdfast/base/process/process_identity.h"
#include "holdfast/base/text.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/internal/no_room.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool has_ended(const LastWord& word) {
  // No attempt has trained here, so nobody can be disturbed.
  if (word.attempt == 0) return true;
  // A state without a final phase may belong to a living run, or to one that was killed: nobody can tell.
  return word.state && is_end(word.state->phase);
}

// A mirror holds HOME by its claim, and writes no state. The claim of a process that is gone counts no more.
void check_no_mirror(Directory& run) {
  if (run.status(kHomeStateName)) return;  // a run directory that has a home
  const Claimant claimant = newest_claimant(run);
  if (claimant.by != kClaimedByMirror) return;
  if (is_here(claimant) && !is_running(claimant.process)) return;
  throw RefusedError(
      run.path() + " is the home of a run: a mirror" +
      (claimant.host.empty() ? std::string() : " on " + claimant.host) +
      " owns it and may be alive. Prune it with `holdfast prune DIR --home`, DIR being the run "
      "directory; with --even-if-running it is fenced off, which ends that run with exit code 76");
}

LastWord last_word_in(FileSystem& file_system, const PruneOptions& options) {
  const auto run = file_system.open_directory(options.directory, false);
  if (!run) throw IoError("open", options.directory.native(), ENOENT, "is the volume mounted?");
  LastWord word = last_word(*run);
  if (!options.even_if_running && !options.dry_run) check_no_mirror(*run);
  if (has_ended(word) || options.even_if_running || options.dry_run) return word;
  std::string says = "attempt " + std::to_string(word.attempt) + " has claimed " + run->path();
  if (word.state) {
    says += word.state->phase == RunPhase::starting ? " and says that it is starting"
                                                    : " and says that it is running";
    if (!word.state->host.empty()) says += " on " + word.state->host;
    if (!word.state->time.empty()) says += ", last at " + word.state->time;
  } else {
    says += " and has not written its state yet";
  }
  throw RefusedError(
      says +
      ": a run seems to be alive. holdfast prune --dry-run shows what would go; with --even-if-running it "
      "fences that run off, which ends it with exit code 76");
}

// What readers believe from now on. The predecessor's verdict stays: a complete run stays complete.
RunState repeated(const LastWord& word, const Selection& selection, const Clock& clock) {
  RunState state;
  if (has_ended(word) && word.state) {
    state = *word.state;
    if (state.copy_of == 0) state.copy_of = word.attempt;
  } else {
    state.phase = RunPhase::interrupted;
    state.exit_code = static_cast<int>(ExitCode::interrupted);
    state.reason = word.attempt == 0 ? "no attempt had recorded how it ended"
                                     : "attempt " + std::to_string(word.attempt) +
                                           " was fenced off by a prune, or had ended without a last state";
    state.copy_of = word.attempt;
    state.step = selection.newest ? selection.newest->step : 0;
    state.time = format_utc(clock.wall_now());
  }
  // The prune is the highest attempt now, so readers take the durable step from this state.
  if (selection.newest) {
    state.durable_step = selection.newest->step;
    state.checkpoint = selection.newest->name;
  }
  return state;
}

AttemptNumber next_attempt_in(FileSystem& file_system, const std::filesystem::path& directory) {
  const auto run = file_system.open_directory(directory, false);
  if (!run) throw IoError("open", directory.native(), ENOENT, "is the volume mounted?");
  return highest_attempt(*run) + 1;
}

bool goes(const RetentionReport::File& file) { return file.fate == RetentionReport::Fate::goes; }

}  // namespace

PruneResult prune(FileSystem& file_system, Clock& clock, Verifier& verifier, const PruneOptions& options) {
  // Before all that is read, which takes time: who claims from now on takes this number, so our claim fails
  // instead of fencing it off.
  const AttemptNumber next = next_attempt_in(file_system, options.directory);
  LastWord word = last_word_in(file_system, options);
  CheckpointStore store(file_system, clock, {.directory = options.directory, .keep = options.keep}, verifier);
  store.preflight();
  PruneResult result{.report = store.plan_retention()};
  if (options.planned) options.planned(result.report);
  const auto& files = result.report.files;
  // Nothing to delete: then the run's claims and states stay untouched as well.
  if (options.dry_run || std::none_of(files.begin(), files.end(), goes)) return result;

  result.attempt = store.claim(kClaimedByPrune, next);
  if (auto end = told_end(*file_system.open_directory(options.directory, false), word.attempt)) {
    word.state = std::move(end);
  }
  const RunState state = repeated(word, store.recover(), clock);
  bool written = false;
  // The state comes first, so that a crash during the deletions leaves the run's verdict. On a full disk it
  // has to wait for the space that the deletions free.
  try {
    store.write_run_state(state);
    written = true;
  } catch (const IoError& error) {
    // Any other error is not cured by deletions.
    if (!internal::no_room(error)) throw;
    log_debug("the state is written after there is room: {}", error.what());
  }
  RetentionReport done = store.prune();
  if (!written) store.write_run_state(state);
  // recover() has swept the half-written files of the plan; report them as gone.
  for (RetentionReport::File& file : result.report.files) {
    if (goes(file) && !file.id) done.files.push_back(std::move(file));
  }
  result.report = std::move(done);
  return result;
}

}}  // namespace holdfast::v0_2
