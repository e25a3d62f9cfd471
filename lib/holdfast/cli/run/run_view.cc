#include "holdfast/cli/run/run_view.h"

#include <algorithm>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Opening one costs a read of its index from the device.
constexpr std::size_t kMostExamined = 8;

RunView::Process process_of(const Claimant& claimant) {
  if (!is_here(claimant)) return RunView::Process::unknown;
  return is_running(claimant.process) ? RunView::Process::runs : RunView::Process::gone;
}

// As a start would see it, but by header and index alone: recovery reads every byte.
std::string why_refused(Directory& run, const RunState* state) {
  const Listing listing = list_checkpoints(run);
  const bool recorded = state != nullptr && state->durable_step >= 0;
  // Nothing was ever saved or lost, so a start begins anew.
  if (listing.checkpoints.empty() && listing.damaged.empty() && !recorded) return {};
  std::size_t examined = 0;
  for (const Listed& listed : listing.checkpoints) {
    if (++examined > kMostExamined) return {};
    const Examined found = examine(run, listed.name, Depth::index);
    if (found.state == FileState::newer) return listed.name + " was written by a newer version of Holdfast";
    if (found.state != FileState::damaged) return {};
  }
  return "no checkpoint verifies";
}

std::unique_ptr<File> ledger_of(Directory& run, AttemptNumber attempt) {
  return run.open(ledger_name(attempt), OpenMode::read);
}

}  // namespace

bool RunView::ended() const {
  const bool told = newest.state && is_end(newest.state->phase);
  return told || life.end.has_value();
}

std::optional<WallTime> RunView::last_sign() const {
  std::optional<WallTime> sign = life.last_wall;
  const auto consider = [&](std::optional<WallTime> when) {
    if (when) sign = sign ? std::max(*sign, *when) : *when;
  };
  if (newest.state) consider(parse_utc(newest.state->time));
  consider(parse_utc(newest.claimant.time));
  if (progress) consider(WallTime(std::chrono::milliseconds(progress->unix_ms)));
  return sign;
}

std::vector<std::string> stall_files(Directory& run) {
  std::set<AttemptNumber> attempts;
  const auto folder = run.open_directory(kAttemptsDirectory, false);
  if (!folder) return {};
  for (const DirectoryEntry& entry : folder->list()) {
    if (const auto attempt = parse_stall_name(entry.name)) attempts.insert(*attempt);
  }
  std::vector<std::string> files;
  files.reserve(attempts.size());
  for (const AttemptNumber attempt : attempts) {
    files.push_back(std::string(kAttemptsDirectory) + "/" + stall_name(attempt));
  }
  return files;
}

RunView look_at_run(const std::filesystem::path& directory, const Clock& clock) {
  RunView view{.directory = directory.string(), .now = clock.wall_now()};
  const auto run = open_run_directory(directory);
  auto words = attempt_words(*run, kHighestNumber);
  if (!words.empty()) {
    view.newest = std::move(words.front());
    view.process = process_of(view.newest.claimant);
    if (const auto ledger = ledger_of(*run, view.newest.attempt)) {
      view.life = read_life(view.newest.attempt, *ledger, kLedgerEnds);
    }
    view.progress = read_progress(*run, view.newest.attempt);
    view.restarts = attempts_before(*run, view.newest.attempt);
  }
  const RunState* const state = view.newest.state ? &*view.newest.state : nullptr;
  const bool complete = state != nullptr && state->phase == RunPhase::complete;
  const bool runs = view.newest.attempt != 0 && !view.ended() && view.process != RunView::Process::gone;
  // While a trainer runs its retention deletes files, and a look at them in between could find none that is
  // whole.
  if (!complete && !runs) view.refusal = why_refused(*run, state);
  if (state != nullptr && parse_checkpoint_name(state->checkpoint)) {
    view.durable_since = staged_at(examine(*run, state->checkpoint, Depth::index));
  }
  view.home = read_home_record(*run);
  view.standby = read_standby_sign(*run);
  if (!view.standby) {  // of a standby for this HOME
    const auto attempts = run->open_directory(kAttemptsDirectory, false);
    if (attempts) view.standby = read_standby_sign(*attempts);
  }
  if (auto stalls = stall_files(*run); !stalls.empty()) view.stall = std::move(stalls.back());
  try {
    view.volume = volume_space(directory);
  } catch (const IoError&) {  // the rest is worth showing without it
  }
  return view;
}

}}  // namespace holdfast::v0_2
