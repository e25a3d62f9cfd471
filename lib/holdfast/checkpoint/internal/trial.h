// A Checkpointer in a trial of `holdfast check` (ledger/trial.h): it uses another run directory, ignores the
// program's save policy, writes a line for every step, and saves, stops or dies (SIGKILL) at ordered steps.
//
// Errors: UsageError for several ranks, and for a folder without orders. Threads: the training thread.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/checkpoint/internal/calls.h"
#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/ledger/trial.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Trial {
 public:
  // nullopt without HOLDFAST_TRIAL. Changes the options of a trial.
  static std::optional<Trial> begin(CheckpointerOptions& options);

  // The program evaluates, or has measured a value.
  void evaluation_seen() noexcept { ++evaluations_; }
  // Writes the line of this step, and does what is ordered for it. Ends the process if the program ignores a
  // stop.
  void at_boundary(Engine& engine, Calls& calls);

 private:
  void note(Engine& engine);
  bool stops_at(const TrialStep& step, SteadyTime now);
  void note_values(std::int64_t step, const Snapshot& state, std::span<const Digest> digests);

  std::filesystem::path folder_;
  TrialOrders orders_;
  std::int64_t evaluations_ = 0;
  std::optional<TrialStep> first_;
  SteadyTime began_{};
  std::int64_t seen_all_at_ = 0;  // the step that first followed an epoch's end and an evaluation
  bool stopped_ = false;
  std::map<std::string, TrialValue> known_;  // by name, as last written
};

}}}  // namespace holdfast::v0_2::internal
