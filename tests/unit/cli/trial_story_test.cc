// Which moments `holdfast check` interrupts.
#include "holdfast/cli/trial/trial_story.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace holdfast { namespace {

// 1,000 steps. From step 31 on the second phase's part gets a tensor a step: LBFGS fills its history so.
TrialLife of_two_phases() {
  TrialLife life;
  for (int step = 1; step <= 1000; ++step) {
    life.steps.push_back({.step = step});
    life.values.push_back({step, "net/weight", "float32 [4]", std::to_string(step)});
    if (step > 30 && step <= 60) {
      life.values.push_back({step, "lbfgs/al." + std::to_string(step), "float32 []", "0"});
    }
  }
  return life;
}

// The tensors of one part must not take all lives: the first phase would be resumed in none of them.
TEST(MomentsOfCheck, TheTimeBeforeAChangeOfFormIsResumedToo) {
  const std::vector<TrialMoment> moments = moments_of(of_two_phases(), 8);
  EXPECT_EQ(moments.size(), 8U);
  const auto between = [&](int from, int to) {
    return std::count_if(moments.begin(), moments.end(),
                         [&](const TrialMoment& one) { return one.save_at >= from && one.save_at < to; });
  };
  EXPECT_EQ(between(2, 31), 1);
  EXPECT_EQ(between(31, 61), 1);
}

}}  // namespace holdfast
