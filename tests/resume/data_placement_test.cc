// A run whose pictures move between host and device from life to life is the run that keeps them on the host:
// the same bits of every step's loss, and the same last line, evaluation included.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

TEST(DataOn, APicturesPlaceIsFreeToChangeAtAnyResume) {
  const auto words =
      small({"--batch-size", "32", "--micro-batch-size", "16", "--channels-last", "--schedule-steps", "20"});
  const ExampleRun straight(words);
  const Ended expected = straight.finish({"--steps", "14"});
  ASSERT_EQ(expected.exit_code, 0) << expected.err;

  const ExampleRun run(words);
  Ended ended;
  const std::vector<std::pair<const char*, const char*>> lives = {
      {"3", "device"}, {"7", "host"}, {"14", "device"}};
  for (const auto& [steps, place] : lives) {
    ended = run.finish({"--steps", steps, "--data-on", place});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  }
  EXPECT_EQ(ended.last_line(), expected.last_line());
  EXPECT_EQ(read_losses(run.metrics()).by_step, read_losses(straight.metrics()).by_step);
}

TEST(DataOn, HelpSaysWhatItCosts) {
  const Ended ended = ExampleRun({}).finish({"--help"});
  EXPECT_THAT(ended.out, ::testing::HasSubstr("--data-on"));
  EXPECT_THAT(ended.out, ::testing::HasSubstr("184 MB"));
}

}}  // namespace holdfast::test
