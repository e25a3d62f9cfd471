// A Checkpointer in a trial of `holdfast check` (ledger/trial.h): it uses another run directory, ignores the
// program's save policy, writes a line for every step, and saves, stops or dies (SIGKILL) at ordered steps.
//
// Errors: UsageError for several ranks, and for a folder without orders. Threads: the training thread.
#pragma once

#include <filesystem>
#include <optional>

#include "holdfast/checkpoint/checkpointer_options.h"
#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/ensemble.h"
#include "holdfast/ledger/trial.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Trial {
 public:
  // nullopt without HOLDFAST_TRIAL. Changes the options of a trial.
  static std::optional<Trial> begin(CheckpointerOptions& options);

  // Writes the line of this step, and does what is ordered for it. Ends the process if the program ignores a
  // stop.
  void at_boundary(Engine& engine, Ensemble& ensemble);

 private:
  void note(std::optional<double> loss, const Attributes& now, const Digest& state);

  std::filesystem::path folder_;
  TrialOrders orders_;
};

}}}  // namespace holdfast::v0_2::internal
