// The example's weights out into a safetensors file and back into another run, and its notice file.
#include "example_run.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

std::string safetensors_of(const ExampleRun& run) {
  std::string file = (run.directory().parent_path() / "weights.safetensors").string();
  const Ended ended =
      Subprocess({program("holdfast"), "export", run.checkpoints().back().string(), "--to", file}).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return file;
}

TEST(Weights, ASafetensorsFileBeginsTheSameRunAsItsCheckpoint) {
  const ExampleRun teacher(small({"--steps", "3", "--no-eval"}));
  ASSERT_EQ(teacher.finish().exit_code, 0);
  const std::string weights = safetensors_of(teacher);

  const auto tuned = [](const std::string& from) {
    const ExampleRun run(small({"--steps", "2", "--no-eval", "--init-from", from}));
    const Ended ended = run.finish();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("with the weights of " + from));
    return value_of(ended.last_line(), "state=");
  };
  const std::string with_safetensors = tuned(weights);
  EXPECT_EQ(with_safetensors.size(), 32u);
  EXPECT_EQ(with_safetensors, tuned(teacher.checkpoints().back().string()));
  const Ended without = ExampleRun(small({"--steps", "2", "--no-eval"})).finish();
  EXPECT_NE(with_safetensors, value_of(without.last_line(), "state="));
}

TEST(Weights, ThatDoNotFitAreNamedAndNothingIsClaimed) {
  const ExampleRun teacher(small({"--steps", "1", "--no-eval"}));
  ASSERT_EQ(teacher.finish().exit_code, 0);
  const std::string weights = safetensors_of(teacher);
  const ExampleRun wider(
      {"--data", "synthetic:256", "--width", "4", "--threads", "1", "--steps", "1", "--init-from", weights});
  const Ended refused = wider.finish();
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_THAT(refused.err,
              HasSubstr("init_from " + weights + ": refused: the weights do not fit this model"));
  EXPECT_THAT(refused.err,
              HasSubstr("model/bn1.weight is float32 [4] here and float32 [2] in the checkpoint"));
  EXPECT_THAT(refused.err, HasSubstr("more"));  // not all of the hundreds
  EXPECT_FALSE(std::filesystem::exists(wider.directory()));
}

TEST(Notices, AFileStopsTheExampleAndTheNextStartGoesOn) {
  const TemporaryFolder folder;
  const std::string notice = folder.path() / "notice";
  const ExampleRun run(small({"--no-eval", "--notice-file", notice, "--on-notice", "exit"}));
  const auto first = run.start({"--steps", "1000000000"});
  ASSERT_TRUE(first->wait_until([&] { return run.steps_logged() >= 3; }));
  write_text(notice, R"({"action": "terminate", "in_seconds": 60, "text": "test"})");
  const Ended stopped = first->wait();
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("holdfast: notice (file): the notice file says terminate: test, "));
  EXPECT_THAT(stopped.last_line(), HasSubstr("reason=the_notice_file_says_terminate:_test"));
  const std::int64_t at = std::stoll(value_of(stopped.last_line(), "step="));

  std::filesystem::remove(notice);
  const Ended done = run.finish({"--steps", std::to_string(at + 2)});
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("resuming from step " + std::to_string(at)));
}

}}  // namespace holdfast::test
