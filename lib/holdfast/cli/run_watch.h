// A look at a run directory from outside, again and again while a command trains in it: which attempt runs,
// and when its commits were acknowledged.
//
// Where nobody named the directory it is looked for among the folders that the command's processes hold open
// (Linux' /proc): the one with `attempts` in it. Which attempts were there before the command is not known
// then: one counts if it began to train after the command did, by its ledger or, without one, its state.
// Errors: none; what cannot be read now may be readable at the next look. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/store/run_state.h"

namespace holdfast::inline v1 {

class RunWatch {
 public:
  struct Acknowledged {
    SteadyTime when{};  // seen by the look that saw it first
    std::int64_t step = 0;
  };

  // `directory` may be empty, and may not exist yet.
  explicit RunWatch(std::filesystem::path directory, Clock& clock = Clock::real())
      : directory_(std::move(directory)), clock_(clock) {}

  // A new life begins: what counts from here on are attempts that are not there yet.
  void expect_new_attempt();
  // `group`: the process group of the command.
  void look(pid_t group);

  const std::filesystem::path& directory() const { return directory_; }
  // The newest state of the life's attempt; nullopt: none has begun to train.
  const std::optional<RunState>& state() const { return state_; }
  // As it was when it began to train.
  const std::optional<RunState>& first_state() const { return first_state_; }
  const std::vector<Acknowledged>& acknowledged() const { return acknowledged_; }

 private:
  std::filesystem::path directory_;
  Clock& clock_;
  bool is_new(const RunState& state);

  std::optional<AttemptNumber> before_;  // the highest when the life began; nullopt: nobody knows
  WallTime life_began_{};
  std::optional<RunState> state_;
  std::optional<RunState> first_state_;
  std::vector<Acknowledged> acknowledged_;
};

// Among the folders that the processes of a group hold open; empty: none is a run directory.
std::filesystem::path run_directory_of(pid_t group);

}  // namespace holdfast::inline v1
