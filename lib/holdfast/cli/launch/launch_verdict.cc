#include "holdfast/cli/launch/launch_verdict.h"

#include <algorithm>

#include "holdfast/base/exit_code.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kComplete = static_cast<int>(ExitCode::complete);
constexpr int kInterrupted = static_cast<int>(ExitCode::interrupted);

}  // namespace

bool is_failure(const Ending& ending) { return ending.code() != kComplete && ending.code() != kInterrupted; }

LaunchVerdict verdict_of(std::span<const RankEnding> endings) {
  // A rank that launch ended itself is no cause of the failure.
  const auto failed = std::find_if(endings.begin(), endings.end(), [](const RankEnding& entry) {
    return !entry.told && is_failure(entry.ending);
  });
  if (failed != endings.end()) {
    return {failed->ending.code(), "rank " + std::to_string(failed->rank) + ": " + to_text(failed->ending)};
  }
  const auto count = std::count_if(endings.begin(), endings.end(), [](const RankEnding& entry) {
    return entry.ending.code() == kInterrupted;
  });
  if (count == 0) return {kComplete, "all ranks are complete"};
  if (static_cast<std::size_t>(count) == endings.size())
    return {kInterrupted, "all ranks are interrupted and can resume"};
  // Neither 0 nor 75: a supervisor must not take a run for complete, or for resumable, while its ranks
  // disagree.
  return {static_cast<int>(ExitCode::internal),
          std::to_string(count) + " of " + std::to_string(endings.size()) +
              " ranks are interrupted (exit 75), the others complete (exit 0): they disagree"};
}

}}  // namespace holdfast::v0_2
