// Watches a run directory from outside while a command trains in it: which attempt runs, and when its commits
// were acknowledged.
//
// Without a given directory it looks for one among the folders that the command's processes hold open
// (/proc): the one that contains `attempts`. Earlier attempts are then unknown, so an attempt counts if it
// began to train after the command started, by its ledger or by its state.
// Errors: none; a later look may succeed. Threads: one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {

class RunWatch {
 public:
  struct Acknowledged {
    SteadyTime when{};  // time of the look that saw it first
    std::int64_t step = 0;
  };

  // `directory` may be empty, and need not exist yet.
  explicit RunWatch(std::filesystem::path directory, Clock& clock = Clock::real())
      : directory_(std::move(directory)), clock_(clock) {}

  // A new life begins: only attempts that do not exist yet count.
  void expect_new_attempt();
  // `group`: the command's process group.
  void poll(pid_t group);

  const std::filesystem::path& directory() const { return directory_; }
  // The newest state of the life's attempt; nullopt: none has begun to train.
  const std::optional<RunState>& state() const { return state_; }
  // Its state when it began to train.
  const std::optional<RunState>& first_state() const { return first_state_; }
  const std::vector<Acknowledged>& acknowledged() const { return acknowledged_; }

 private:
  std::filesystem::path directory_;
  Clock& clock_;
  bool is_new(const RunState& state);

  std::optional<AttemptNumber> before_;  // highest attempt before the life; nullopt: unknown
  WallTime life_began_{};
  std::optional<RunState> state_;
  std::optional<RunState> first_state_;
  std::vector<Acknowledged> acknowledged_;
};

// The run directory among the folders that processes of the group hold open; empty: none.
std::filesystem::path run_directory_of(pid_t group);

}}  // namespace holdfast::v0_2
