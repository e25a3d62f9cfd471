#include "holdfast/cli/run/run_watch.h"

#include <unistd.h>

#include <chrono>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/ledger/ledger_reader.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

namespace fs = std::filesystem;

std::optional<RunState> read_state(const fs::path& directory) {
  if (directory.empty()) return std::nullopt;
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    return run ? read_run_state(*run) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // a prune or a network volume may be the cause; the next look may succeed
  }
}

AttemptNumber highest_in(const fs::path& directory) {
  if (directory.empty()) return 0;
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    return run ? highest_attempt(*run) : 0;
  } catch (const Error&) {
    return 0;
  }
}

// When an attempt began to train, from the first lines of its ledger.
std::optional<WallTime> began(const fs::path& directory, AttemptNumber attempt) {
  // Asked at each look, 50 times a second, so the whole ledger of a long attempt is not read.
  constexpr std::size_t kStart = 64 << 10;  // bytes; the start line is among the first ones
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    const auto file = run ? run->open(ledger_name(attempt), OpenMode::read) : nullptr;
    if (!file) return std::nullopt;
    const LedgerLife life = read_life(attempt, *file, kStart);
    return life.started ? std::optional(life.start) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The run directory for a folder that a process holds open; empty if it is none.
fs::path run_directory_at(const fs::path& folder) {
  std::error_code unreadable;
  if (folder.filename() == kAttemptsDirectory) return folder.parent_path();
  return fs::is_directory(folder / kAttemptsDirectory, unreadable) ? folder : fs::path();
}

}  // namespace

fs::path run_directory_of(pid_t group) {
  std::error_code gone;
  for (fs::directory_iterator at("/proc", gone), end; !gone && at != end; at.increment(gone)) {
    const auto process = parse_int(at->path().filename().native());
    if (!process || getpgid(static_cast<pid_t>(*process)) != group) continue;
    std::error_code closed;
    for (fs::directory_iterator file(at->path() / "fd", closed), last; !closed && file != last;
         file.increment(closed)) {
      std::error_code unreadable;
      const fs::path target = fs::read_symlink(file->path(), unreadable);
      if (unreadable || !target.is_absolute() || !fs::is_directory(target, unreadable)) continue;
      if (fs::path run = run_directory_at(target); !run.empty()) return run;
    }
  }
  return {};
}

void RunWatch::expect_new_attempt() {
  before_ = directory_.empty() ? std::nullopt : std::optional(highest_in(directory_));
  // Rounded down to milliseconds, as times in ledgers are.
  life_began_ = std::chrono::floor<std::chrono::milliseconds>(clock_.wall_now());
  state_.reset();
  first_state_.reset();
  acknowledged_.clear();
}

bool RunWatch::is_new(const RunState& state) {
  if (before_) return state.attempt > *before_;
  if (const auto when = began(directory_, state.attempt)) {
    // Remembered, so that the ledger of an old attempt is not read again at each look.
    if (*when < life_began_) before_ = state.attempt;
    return *when >= life_began_;
  }
  // The state has whole seconds, and the time of its newest commit: the answer may come one commit late.
  const auto told = parse_utc(state.time);
  return told && *told > life_began_;
}

void RunWatch::poll(pid_t group) {
  if (directory_.empty()) directory_ = run_directory_of(group);
  auto state = read_state(directory_);
  if (!state || state->phase == RunPhase::starting) return;
  // Follows one attempt; a newer one belongs to another start.
  if (state_ && state->attempt != state_->attempt) return;
  if (!first_state_ && !is_new(*state)) return;
  if (!first_state_) first_state_ = state;
  const std::int64_t known = acknowledged_.empty() ? first_state_->durable_step : acknowledged_.back().step;
  if (state->durable_step > known) acknowledged_.push_back({clock_.now(), state->durable_step});
  state_ = std::move(state);
}

}}  // namespace holdfast::v0_2
