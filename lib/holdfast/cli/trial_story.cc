#include "holdfast/cli/trial_story.h"

#include <algorithm>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// What it printed after that step.
std::string printed_after(const TrialLife& life, const TrialStep& step) {
  if (step.output < 0 || step.output > static_cast<std::int64_t>(life.output.size())) return {};
  return life.output.substr(static_cast<std::size_t>(step.output));
}

}  // namespace

std::vector<TrialMoment> moments_of(const std::vector<TrialStep>& straight) {
  const std::int64_t first = straight.front().step;
  const std::int64_t last = straight.back().step;
  const std::int64_t third = first + (last - first) / 3;
  const std::int64_t half = first + (last - first) / 2;
  // The first kill leaves the steps after the save to compute again, the second one leaves none.
  std::vector<TrialMoment> moments = {{"in the middle", third, half}, {"right after a save", half, half}};
  // Not the last step, because one must remain to be compared.
  for (std::size_t i = 1; i + 1 < straight.size(); ++i) {
    if (straight[i].epoch == straight[i - 1].epoch) continue;
    moments.push_back({"at an epoch's end", straight[i - 1].step, straight[i].step});
    break;
  }
  return moments;
}

std::string difference(const TrialLife& straight, const TrialLife& resumed, std::int64_t resumed_at,
                       bool with_output) {
  const auto expected = std::find_if(straight.steps.begin(), straight.steps.end(),
                                     [&](const TrialStep& step) { return step.step == resumed_at + 1; });
  if (resumed.steps.empty()) return "the resumed life took no step";
  if (resumed.steps.front().step != resumed_at + 1) {
    return "the next life began at step " + format_count(resumed.steps.front().step) + ", not at step " +
           format_count(resumed_at + 1);
  }
  auto seen = resumed.steps.begin();
  for (auto step = expected; step != straight.steps.end(); ++step, ++seen) {
    const std::string number = "step " + format_count(step->step);
    if (seen == resumed.steps.end()) return number + ": the resumed life ended before it";
    if (seen->loss != step->loss) return number + ": the loss differs";
    if (seen->state != step->state) return number + ": the loss is equal, the state differs";
    if (seen->epoch != step->epoch) return number + ": the epoch of the data differs";
  }
  if (seen != resumed.steps.end()) return "the resumed life took more steps than the straight one";
  if (with_output && printed_after(straight, *expected) != printed_after(resumed, resumed.steps.front())) {
    return "standard output differs after step " + format_count(resumed_at + 1);
  }
  return {};
}

}}  // namespace holdfast::v0_2
