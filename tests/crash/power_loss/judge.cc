#include "judge.h"

#include <algorithm>

#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/run_directory.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/run_state.h"

namespace holdfast::test::power_loss {
namespace {

std::string text(FileId id) { return checkpoint_name(id); }

Broken lost(const std::string& why) { return {Broken::Kind::lost, why}; }
Broken silent(const std::string& why) { return {Broken::Kind::silent, why}; }

// What wrappers read before the next start.
std::optional<Broken> judge_states(Directory& run, const Promise& promise, std::optional<RunState>& state) {
  const auto attempts = run.open_directory(kAttemptsDirectory, false);
  const AttemptNumber highest = highest_attempt(run, attempts.get());
  if (highest < promise.claimed) return lost("the claim of attempt " + std::to_string(promise.claimed));
  state = read_run_state(run);
  if (highest == 0 || highest != promise.state_attempt) return std::nullopt;
  if (!state) return lost("the state of attempt " + std::to_string(highest));
  if (state->durable_step < promise.state_step) {
    return lost("a state that told of step " + std::to_string(promise.state_step));
  }
  return std::nullopt;
}

std::optional<Broken> judge_copy_of_state(Directory& run) {
  const auto copy = internal::read_small(run, kRunStateName, 1 << 16);
  if (copy && !run_state_from_json(*copy)) return silent(std::string(kRunStateName) + " is torn");
  return std::nullopt;
}

std::optional<Broken> judge_finite(Directory& run, const Promise& promise, Verifier& verifier) {
  if (!promise.finite) return std::nullopt;
  for (const Candidate& candidate : candidates_in(run)) {
    if (candidate.id < *promise.finite) break;
    const auto file = run.open(candidate.name, OpenMode::read);
    const Verdict verdict = verifier.inspect(*file, Verifier::Depth::full, false);
    if (verdict.kind == Verdict::Kind::good && verdict.finite) return std::nullopt;
  }
  return lost("the newest finite checkpoint, " + text(*promise.finite));
}

// A checkpoint's name is made when its bytes are durable, and they never change under it: also of those that
// recovery has no reason to look at.
std::optional<Broken> judge_names(const SimFileSystem& files, const Directory& run, const Promise& promise) {
  for (const Candidate& candidate : candidates_in(run)) {
    if (promise.rotten.contains(candidate.id)) continue;
    const auto node = files.find(kRun / candidate.name);
    const auto written = promise.written.find(candidate.id);
    if (!node || written == promise.written.end() ||
        files.disk().content_hash(*node) != written->second.content) {
      return lost("bytes of " + candidate.name + ", which has a checkpoint's name");
    }
  }
  return std::nullopt;
}

std::optional<Broken> judge_selection(SimFileSystem& files, const Selection& selection,
                                      const Promise& promise) {
  for (const Skipped& skipped : selection.skipped) {
    const auto id = parse_checkpoint_name(skipped.name);
    if (!id || !promise.rotten.contains(*id)) {
      return lost("bytes of " + skipped.name + ", whose name was made before they were durable (" +
                  skipped.reason + ")");
    }
  }
  if (!selection.newest) {
    return promise.acknowledged ? std::optional(lost(text(*promise.acknowledged) + ", and everything else"))
                                : std::nullopt;
  }
  const FileId found{.attempt = selection.newest->attempt, .step = selection.newest->step};
  if (promise.acknowledged && found < *promise.acknowledged) {
    return lost(text(*promise.acknowledged) + "; recovery goes on from " + text(found));
  }
  const auto written = promise.written.find(found);
  const auto node = files.find(kRun / selection.newest->name);
  if (written == promise.written.end() || !node ||
      files.disk().content_hash(*node) != written->second.content) {
    return silent("recovery takes " + selection.newest->name + " for good, whose bytes nobody wrote");
  }
  return std::nullopt;
}

}  // namespace

std::optional<Broken> judge(SimFileSystem& files, Session& session, const Promise& promise, FileMaker& maker,
                            bool thorough) {
  try {
    std::optional<RunState> state;
    if (const auto run = files.open_directory(kRun, false)) {
      if (auto broken = judge_states(*run, promise, state)) return broken;
      if (thorough) {
        if (auto broken = judge_copy_of_state(*run)) return broken;
      }
    } else if (promise.claimed > 0) {
      return lost("the run directory");
    }
    const AttemptNumber claimed = promise.claimed;
    const Selection selection = session.start();
    if (session.attempt() <= claimed)
      return lost("the number of attempt " + std::to_string(claimed) + ": it was given twice");
    if (auto broken = judge_selection(files, selection, promise)) return broken;
    if (auto broken = judge_names(files, *files.open_directory(kRun, false), promise)) return broken;
    const auto name_in = [](const Selection& chosen) { return chosen.newest ? chosen.newest->name : ""; };
    if (name_in(session.preflight()) != name_in(selection)) {
      return silent("preflight chose " + name_in(session.preflight()) + ", recovery " + name_in(selection));
    }
    // An attempt that began with an older step tells of that one.
    if (state && selection.newest && selection.newest->attempt == state->attempt && promise.rotten.empty() &&
        selection.newest->step < state->durable_step) {
      return lost("step " + std::to_string(state->durable_step) + ", of which a state file tells");
    }
    if (thorough) {
      read_life(claimed, *files.open_directory(kRun, false));
      if (auto broken = judge_finite(*files.open_directory(kRun, false), promise, maker.verifier()))
        return broken;
    }
    return std::nullopt;
  } catch (const std::exception& error) {
    return Broken{Broken::Kind::stuck, error.what()};
  }
}

}  // namespace holdfast::test::power_loss
