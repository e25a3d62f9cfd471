// --metrics FILE: one JSON line a step, whole after kill -9, and the same bits when steps are computed again.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

TEST(Metrics, OneLineAStepWithAllThatIsPromised) {
  const ExampleRun run(small({"--steps", "20", "--no-eval"}));
  const Ended ended = run.finish();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto lines = lines_of(read_text(run.metrics()));
  ASSERT_EQ(lines.size(), 20U);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(value_of(lines[i], "\"step\":"), std::to_string(i + 1));
    EXPECT_EQ(value_of(lines[i], "\"epoch\":"), i < 16 ? "0" : "1")
        << "the epoch the step belongs to, from 0";
    EXPECT_GT(std::stod(value_of(lines[i], "\"loss\":")), 0);
    EXPECT_GT(std::stod(value_of(lines[i], "\"lr\":")), 0);
    EXPECT_GT(std::stod(value_of(lines[i], "\"images_per_s\":")), 0);
  }
  // All digits: the last line of standard output says the same loss.
  EXPECT_EQ(value_of(lines.back(), "\"loss\":"), value_of(ended.last_line(), "loss="));
}

TEST(Metrics, TheStepAfterASaveTellsOfIt) {
  const ExampleRun run(small({"--steps", "70", "--no-eval", "--every", "20steps"}));
  ASSERT_EQ(run.finish().exit_code, 0);
  const auto lines = lines_of(read_text(run.metrics()));
  ASSERT_EQ(lines.size(), 70U);
  int told = 0;
  for (const std::string& line : lines) {
    const auto at = line.find("\"saved\":");
    if (at == std::string::npos) continue;
    ++told;
    const std::string saved = line.substr(at + 8);
    EXPECT_EQ(std::stoi(value_of(saved, "\"step\":")) % 20, 0);
    EXPECT_GT(std::stod(value_of(saved, "\"bytes\":")), 0);
    EXPECT_GT(std::stod(value_of(saved, "\"blocked_ms\":")), 0);
    EXPECT_GT(std::stod(value_of(saved, "\"write_ms\":")), 0);
    EXPECT_GT(std::stoi(value_of(saved, "\"risk_steps\":")), 0);
  }
  EXPECT_GT(told, 0);
}

TEST(Metrics, ATornLastLineIsClosedFirst) {
  const ExampleRun run(small({"--no-eval"}));
  ASSERT_EQ(run.finish({"--steps", "5"}).exit_code, 0);
  write_text(run.metrics(), read_text(run.metrics()) + R"({"step":6,"epo)");
  ASSERT_EQ(run.finish({"--steps", "8"}).exit_code, 0);
  const auto lines = lines_of(read_text(run.metrics()));
  ASSERT_EQ(lines.size(), 9U);
  EXPECT_EQ(lines[5], R"({"step":6,"epo)");
  EXPECT_EQ(value_of(lines[6], "\"step\":"), "6");
  EXPECT_EQ(read_losses(run.metrics()).by_step.size(), 8U);
}

TEST(Metrics, RecomputedStepsAppearAgainWithEqualBits) {
  const ExampleRun run(small({"--no-eval"}));
  auto process = run.start({"--steps", "100000", "--every", "10steps"});
  ASSERT_TRUE(process->wait_until([&] { return run.checkpoints().size() >= 2; }));
  process->send(SIGKILL);
  process->wait();
  const std::int64_t lines = run.steps_logged();
  std::filesystem::remove(run.checkpoints().back());  // as if it had not been committed in time
  const Ended ended = run.finish({"--steps", std::to_string(lines + 3)});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_GE(read_losses(run.metrics()).repeated, 1);
}

TEST(Metrics, AFileThatCannotBeWrittenIsSaidBeforeTheTrainingStarts) {
  const ExampleRun run(small({"--steps", "2"}));
  std::filesystem::create_directories(run.metrics());  // a folder of that name
  const Ended ended = run.finish();
  EXPECT_EQ(ended.exit_code, 74) << ended.err;
  EXPECT_THAT(ended.err, ::testing::HasSubstr(run.metrics().string()));
  EXPECT_EQ(ended.out, "");
}

}}  // namespace holdfast::test
