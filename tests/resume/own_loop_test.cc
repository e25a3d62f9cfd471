// The user's own loop made resumable: the same promises as the example's, with nothing but a Checkpointer.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

Ended own_loop(const std::filesystem::path& directory, const std::string& steps) {
  return Subprocess({program("own_loop"), directory.string(), steps}, {{"OMP_NUM_THREADS", "1"}}).wait();
}

TEST(OwnLoop, KilledAndStoppedItEndsAsTheStraightRun) {
  const TemporaryFolder folder;
  const Ended straight = own_loop(folder.path() / "straight", "1500");
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  ASSERT_EQ(value_of(straight.last_line(), "step="), "1500");

  const auto directory = folder.path() / "run";
  int interrupted = 0;
  for (const int signal : {SIGTERM, SIGKILL, SIGTERM}) {
    Subprocess process({program("own_loop"), directory.string(), "1500"}, {{"OMP_NUM_THREADS", "1"}});
    const int lines = 2 + interrupted;
    process.wait_until([&] {
      const std::string text = process.err();
      return std::count(text.begin(), text.end(), '\n') >= lines && text.find("loss") != std::string::npos;
    });
    process.send(signal);
    const Ended ended = process.wait();
    if (ended.exit_code == 0) break;
    EXPECT_TRUE(signal == SIGKILL ? ended.signal == SIGKILL : ended.exit_code == 75) << ended.err;
    ++interrupted;
  }
  EXPECT_GE(interrupted, 2) << "the test proves nothing";
  const Ended ended = own_loop(directory, "1500");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.last_line(), straight.last_line());
}

TEST(OwnLoop, TheExampleLearnsItsData) {
  const TemporaryFolder folder;
  const Ended ended = own_loop(folder.path() / "run", "1000");
  EXPECT_LT(std::stod(value_of(ended.last_line(), "loss=")), 0.5) << ended.out;
}

TEST(OwnLoop, TakesAboutTenLines) {
  const std::string source = read_text(std::string(HOLDFAST_SOURCE_DIR) + "/examples/own_loop/main.cc");
  const auto lines = lines_of(source);
  const auto marked = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("// holdfast") != std::string::npos && line.find("#include") == std::string::npos;
  });
  EXPECT_GE(marked, 6);
  EXPECT_LE(marked, 12);
}

}}  // namespace holdfast::test
