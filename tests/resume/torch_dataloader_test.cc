// A trainer with torch's own DataLoader made resumable: killed at any moment, also in the evaluation at an
// epoch's end, it ends as the straight run.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

std::unique_ptr<Subprocess> torch_dataloader(const std::filesystem::path& directory) {
  return std::make_unique<Subprocess>(
      std::vector<std::string>{program("torch_dataloader"), directory.string(), "4"},
      std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}});
}

TEST(TorchDataLoader, KilledAndStoppedItEndsAsTheStraightRun) {
  const TemporaryFolder folder;
  const Ended straight = torch_dataloader(folder.path() / "straight")->wait();
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  ASSERT_EQ(value_of(straight.last_line(), "step="), "252");

  // What the program has said when the signal comes: in the middle of an epoch, and at an epoch's end.
  const std::vector<std::pair<int, std::string>> interruptions = {
      {SIGTERM, "batch 40"}, {SIGTERM, "batch 60"}, {SIGKILL, "accuracy"},
      {SIGTERM, "batch 20"}, {SIGKILL, "batch 40"},
  };
  const auto directory = folder.path() / "run";
  int interrupted = 0;
  for (const auto& [signal, said] : interruptions) {
    const auto process = torch_dataloader(directory);
    process->wait_until([&, text = said] { return process->err().find(text) != std::string::npos; });
    process->send(signal);
    const Ended ended = process->wait();
    if (ended.exit_code == 0) break;
    EXPECT_TRUE(signal == SIGKILL ? ended.signal == SIGKILL : ended.exit_code == 75) << ended.err;
    ++interrupted;
  }
  EXPECT_GE(interrupted, 3) << "the test proves nothing";
  const Ended ended = torch_dataloader(directory)->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.last_line(), straight.last_line());
}

TEST(TorchDataLoader, TheExampleLearnsItsData) {
  const TemporaryFolder folder;
  const Ended ended = torch_dataloader(folder.path() / "run")->wait();
  EXPECT_LT(std::stod(value_of(ended.last_line(), "loss=")), 0.5) << ended.out;
}

TEST(TorchDataLoader, TakesAtMostTwelveLines) {
  const auto lines =
      lines_of(read_text(std::string(HOLDFAST_SOURCE_DIR) + "/examples/torch_dataloader/main.cc"));
  const auto marked = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("// holdfast") != std::string::npos && line.find("#include") == std::string::npos;
  });
  EXPECT_GE(marked, 6);
  EXPECT_LE(marked, 12);
}

}}  // namespace holdfast::test
