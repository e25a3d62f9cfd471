#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/mirror/home_notes.h"
#include "holdfast/mirror/rclone_home.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/claim.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kClaimAgain = std::chrono::seconds(5);

bool is_over(const LastWord& word) { return word.state && is_end(word.state->phase); }

// What readers believe from now on: a standby goes on, and so does any other start.
RunState fenced_off(const LastWord& word, const std::vector<CheckpointInfo>& there) {
  RunState state{.phase = RunPhase::interrupted};
  state.exit_code = static_cast<int>(ExitCode::interrupted);
  state.reason = "attempt " + std::to_string(word.attempt) + " was fenced off by holdfast takeover";
  state.copy_of = word.attempt;
  state.time = format_utc(Clock::real().wall_now());
  if (word.state) {
    state.step = word.state->step;
    state.durable_step = word.state->durable_step;
    state.checkpoint = word.state->checkpoint;
  }
  if (!there.empty()) {
    state.durable_step = there.front().step;
    state.checkpoint = there.front().name;
  }
  return state;
}

std::string fenced_text(AttemptNumber held, const std::string& host, AttemptNumber next) {
  return "attempt " + std::to_string(held) + (host.empty() ? "" : " on " + host) +
         " is fenced off by attempt " + std::to_string(next) +
         ": it saves nothing more, and ends with 76. A standby goes on with the run; without one, start the "
         "trainer";
}

std::string ended_text(AttemptNumber attempt, const RunState& state) {
  return "attempt " + std::to_string(attempt) + " has ended already (" + word_of(state.phase) +
         "); nothing was changed";
}

// It has ended between the look and the claim, and a complete run must stay complete.
std::string meanwhile_text(AttemptNumber held, const RunState& state, AttemptNumber next) {
  return "attempt " + std::to_string(held) + " has just ended (" + word_of(state.phase) +
         "); that stands, and attempt " + std::to_string(next) + " repeats it";
}

// A run directory with a mirror names its HOME. The newest claim may be empty: its machine died as it wrote.
bool is_home(Directory& run) {
  if (run.status(kHomeStateName)) return false;
  if (newest_claimant(run).by == kClaimedByMirror) return true;
  const auto attempts = run.open_directory(kAttemptsDirectory, false);
  const auto entries = attempts ? attempts->list() : std::vector<DirectoryEntry>();
  return std::any_of(entries.begin(), entries.end(),
                     [](const DirectoryEntry& entry) { return parse_holder_name(entry.name).has_value(); });
}

// In a store the number may be taken by a machine that has died before its claim: that shows after a while.
AttemptNumber claim_home(Home& home, Pace& pace, AttemptNumber after) {
  for (;;) {
    if (const AttemptNumber next = home.claim_after(after)) return next;
    if (home_word(home).highest > after) {
      throw RefusedError(home.name() + ": an attempt has just begun; nothing was claimed");
    }
    pace.wait(kClaimAgain);
  }
}

int take_over_home(const std::string& place) {
  FileVerifier verifier(1);
  verifier.stop_keeping();
  Pace pace(Clock::real());
  const auto home = open_home({.place = place}, FileSystem::real(), verifier, pace);
  const HomeWord word = home_word(*home);
  if (word.highest == 0) {
    throw RefusedError(printable(place, 4096) +
                       ": nobody has trained there, so there is nothing to take over");
  }
  if (word.holder && is_over({.attempt = word.highest, .state = word.holder})) {
    std::cout << ended_text(word.highest, *word.holder) << '\n';
    return 0;
  }
  const AttemptNumber next = claim_home(*home, pace, word.highest);
  if (const auto state = holder_word(*home, word.highest); state && is_end(state->phase)) {
    tell_holder(*home, *state, next);
    std::cout << meanwhile_text(word.highest, *state, next) << '\n';
    return 0;
  }
  tell_holder(*home, fenced_off({.attempt = word.highest, .state = word.holder}, {}), next);
  std::cout << fenced_text(word.highest, word.holder ? word.holder->host : "", next) << '\n';
  return 0;
}

int take_over(const std::filesystem::path& directory) {
  if (directory.native().starts_with(kRclonePrefix)) return take_over_home(directory.native());
  const auto run = FileSystem::real().open_directory(directory, false);
  if (!run) throw IoError("open", directory.native(), ENOENT, "is the volume mounted?");
  if (is_home(*run)) return take_over_home(directory.native());
  // In this order: an attempt that begins meanwhile takes the number.
  const AttemptNumber next = highest_attempt(*run) + 1;
  const LastWord word = last_word(*run);
  if (word.attempt == 0) {
    throw RefusedError(shown(directory) + ": nobody has trained there, so there is nothing to take over");
  }
  if (is_over(word)) {
    std::cout << ended_text(word.attempt, *word.state) << '\n';
    return 0;
  }
  FileVerifier verifier(1);
  verifier.stop_keeping();
  CheckpointStore store(FileSystem::real(), Clock::real(), {.directory = directory, .allow_fresh = true},
                        verifier);
  store.claim(kClaimedByTakeover, next);
  if (const auto state = told_end(*run, word.attempt)) {
    store.write_run_state(*state);
    std::cout << meanwhile_text(word.attempt, *state, next) << '\n';
    return 0;
  }
  store.write_run_state(fenced_off(word, store.list()));
  std::cout << fenced_text(word.attempt, word.state ? word.state->host : "", next) << '\n';
  return 0;
}

constexpr char kTakeoverFooter[] =
    R"(Use it where you know that the machine that holds the run is gone, or must not go on: a standby
(holdfast supervise --standby) never believes in silence alone. Takeover claims the next attempt, as each start does.
If the holder lives, it loses what it has not saved, and ends with 76. No checkpoint is changed.

Exit code: 0 done, or the run had ended already; 2 unreadable, or refused (nobody has trained there, or another
attempt has just begun); 64 wrong options.

Examples:
  holdfast takeover /mnt/efs/run1
  holdfast takeover rclone:s3:bucket/run1)";

}  // namespace

void add_takeover(CLI::App& app, Command& chosen) {
  const auto directory = std::make_shared<std::filesystem::path>();
  CLI::App* const command =
      app.add_subcommand("takeover", "Fence off the attempt that holds a run, so that a standby goes on");
  command
      ->add_option(
          "PLACE", *directory,
          "the run directory, or the HOME of a run with a mirror: a directory, or rclone:REMOTE:PATH")
      ->required();
  command->footer(kTakeoverFooter);
  command->callback([directory, &chosen] { chosen = [directory] { return take_over(*directory); }; });
}

}}  // namespace holdfast::v0_2
