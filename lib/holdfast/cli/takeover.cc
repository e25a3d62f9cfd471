#include <CLI/CLI.hpp>
#include <cerrno>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/examine.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool is_over(const LastWord& word) { return word.state && is_end(word.state->phase); }

// What readers believe from now on: a standby goes on, and so does any other start.
RunState fenced_off(const LastWord& word, const std::vector<CheckpointInfo>& there) {
  RunState state;
  state.phase = RunPhase::interrupted;
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

int take_over(const std::filesystem::path& directory) {
  const auto run = FileSystem::real().open_directory(directory, false);
  if (!run) throw IoError("open", directory.native(), ENOENT, "is the volume mounted?");
  // In this order: an attempt that begins meanwhile takes the number.
  const AttemptNumber next = highest_attempt(*run) + 1;
  const LastWord word = last_word(*run);
  if (word.attempt == 0) {
    throw RefusedError(shown(directory) + ": nobody has trained there, so there is nothing to take over");
  }
  const std::string attempt = "attempt " + std::to_string(word.attempt);
  if (is_over(word)) {
    std::cout << attempt << " has ended already (" << word_of(word.state->phase)
              << "); nothing was changed\n";
    return 0;
  }
  FileVerifier verifier(1);
  verifier.stop_keeping();
  CheckpointStore store(FileSystem::real(), Clock::real(), {.directory = directory, .allow_fresh = true},
                        verifier);
  store.claim(kClaimedByTakeover, next);
  store.write_run_state(fenced_off(word, store.list()));
  std::cout << attempt << (word.state && !word.state->host.empty() ? " on " + word.state->host : "")
            << " is fenced off by attempt " << next << ": it saves nothing more, and ends with 76. "
            << "A standby goes on with the run; without one, start the trainer\n";
  return 0;
}

constexpr char kTakeoverFooter[] =
    R"(Use it where you know that the machine that holds the run is gone, or must not go on: a standby
(holdfast supervise --standby) never believes in silence alone. Takeover claims the next attempt, as each start does.
If the holder lives, it loses what it has not saved, and ends with 76. No checkpoint is changed.

Exit code: 0 done, or the run had ended already; 2 unreadable, or refused (nobody has trained there, or another
attempt has just begun); 64 wrong options.

Example:
  holdfast takeover /mnt/efs/run1)";

}  // namespace

void add_takeover(CLI::App& app, Command& chosen) {
  const auto directory = std::make_shared<std::filesystem::path>();
  CLI::App* const command =
      app.add_subcommand("takeover", "Fence off the attempt that holds a run, so that a standby goes on");
  command->add_option("DIR", *directory, "the run directory")->required();
  command->footer(kTakeoverFooter);
  command->callback([directory, &chosen] { chosen = [directory] { return take_over(*directory); }; });
}

}}  // namespace holdfast::v0_2
