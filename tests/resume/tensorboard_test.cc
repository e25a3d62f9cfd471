// --tensorboard and --prometheus of the example, through kills: read by TensorBoard itself.
#include "resume/example_run.h"
#include "support/foreign_python.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr unsigned kSeed = 20261125;

// Prints the number of event files, and of each tag the number of points. Steps must increase in every curve.
constexpr const char* kReader = R"(
import glob, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
run = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "histograms": 0}).Reload()
print("files", len(glob.glob(sys.argv[1] + "/*tfevents*")))
for tag in run.Tags()["scalars"]:
    steps = [event.step for event in run.Scalars(tag)]
    assert all(a < b for a, b in zip(steps, steps[1:])), f"{tag}: steps do not increase: {steps}"
    print(tag, len(steps), steps[0], steps[-1])
for tag in run.Tags()["histograms"]:
    print(tag, len(run.Histograms(tag)))
)";

class Exporters : public ::testing::Test {
 protected:
  std::filesystem::path tensorboard() const { return folder_.path() / "tb"; }
  std::filesystem::path prometheus() const { return folder_.path() / "run.prom"; }
  std::vector<std::string> with(std::vector<std::string> more) const {
    more.insert(more.end(), {"--tensorboard", tensorboard().string(), "--prometheus", prometheus().string()});
    return more;
  }

  std::ptrdiff_t files() const {
    if (!std::filesystem::exists(tensorboard())) return 0;
    return std::distance(std::filesystem::directory_iterator(tensorboard()), {});
  }

  TemporaryFolder folder_;
  ExampleRun run_{small({"--every", "5steps", "--schedule-steps", "64"})};
};

TEST_F(Exporters, AfterThreeKillsStepsIncreaseInEveryCurve) {
  const ForeignPython python("tensorboard");
  if (!python) GTEST_SKIP() << python.why_not();
  std::mt19937 random(kSeed);
  for (int kill = 0; kill < 3; ++kill) {
    const std::int64_t before = run_.steps_logged();
    const auto process = run_.start(with({"--steps", "1000000"}));
    ASSERT_TRUE(process->wait_until([&] { return run_.steps_logged() > before + 12 && files() == kill + 1; }))
        << process->err();
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<int>(0, 300'000)(random)));
    process->send(SIGKILL);
    ASSERT_EQ(process->wait().signal, SIGKILL);
  }
  const std::int64_t last = run_.steps_logged() + 20;
  const Ended ended = run_.finish(with({"--steps", std::to_string(last), "--tensorboard-histograms", "10"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, Not(HasSubstr("metrics are")));

  const Ended reader = python.run({"-c", kReader, tensorboard().string()});
  ASSERT_EQ(reader.exit_code, 0) << reader.err;
  EXPECT_THAT(reader.out, HasSubstr("files 4\n"));
  EXPECT_EQ(value_of(reader.out, "train/loss "), value_of(reader.out, "train/lr "));
  EXPECT_THAT(reader.out, ::testing::ContainsRegex("train/loss [0-9]+ 1 " + std::to_string(last) + "\n"));
  for (const char* tag : {"val/accuracy ", "checkpoint/commit_seconds ", "system/cpu_cores ",
                          "weights/fc.weight ", "gradients/fc.weight "}) {
    EXPECT_THAT(reader.out, HasSubstr(tag));
  }
  const std::string text = read_text(prometheus());
  EXPECT_THAT(text, HasSubstr("holdfast_train_step{run=\"run\",rank=\"0\"} " + std::to_string(last) + "\n"));
  EXPECT_THAT(text, HasSubstr("holdfast_checkpoint_last_commit_step{run=\"run\",rank=\"0\"} " +
                              std::to_string(last) + "\n"));
}

TEST_F(Exporters, FilesThatCannotBeWrittenStopNothing) {
  write_text(folder_.path() / "tb", "a file where the folder should be");
  const Ended ended = run_.finish({"--steps", "5", "--no-eval", "--tensorboard", tensorboard().string(),
                                   "--prometheus", (folder_.path() / "no/such/folder.prom").string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  for (const std::string& target :
       {tensorboard().string(), (folder_.path() / "no/such/folder.prom").string()}) {
    const std::string warning = "no more metrics are written to " + target + " (training goes on)";
    const auto first = ended.err.find(warning);
    EXPECT_NE(first, std::string::npos) << ended.err;
    EXPECT_EQ(ended.err.find(warning, first + 1), std::string::npos) << ended.err;
  }
}

TEST_F(Exporters, AFullDeviceStopsNothing) {
  const Ended ended = Subprocess({program("resnet50_cifar10"), "--data", "synthetic:256", "--width", "2",
                                  "--batch-size", "16", "--threads", "1", "--steps", "5", "--no-eval",
                                  "--checkpoint-dir", run_.directory().string(), "--metrics", "/dev/full"})
                          .wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("no more metrics are written to /dev/full (training goes on)"));
}

TEST_F(Exporters, ADeviceIsNoPrometheusFile) {
  const Ended ended = run_.finish({"--steps", "2", "--prometheus", "/dev/full"});
  EXPECT_EQ(ended.exit_code, 74) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("/dev/full"));
  EXPECT_EQ(ended.out, "");
}

// A full file system of its own, where the test may mount one.
TEST_F(Exporters, AFullFileSystemStopsNothing) {
  const std::string disk = folder_.path() / "disk";
  std::filesystem::create_directory(disk);
  std::string command;
  for (const std::string& word : run_.command(
           {"--steps", "12", "--no-eval", "--tensorboard", disk + "/tb", "--tensorboard-histograms", "1"})) {
    command += " '" + word + "'";
  }
  const std::string script = "mount -t tmpfs -o size=64k tmpfs '" + disk + "' || exit 77\n exec" + command;
  const Ended ended =
      Subprocess({"/usr/bin/env", "unshare", "--mount", "--map-root-user", "/bin/sh", "-c", script}).wait();
  if (ended.exit_code == 77 || ended.exit_code == 1)
    GTEST_SKIP() << "no mount name space here: " << ended.err;
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("no more metrics are written to " + disk + "/tb (training goes on)"));
  EXPECT_THAT(ended.err, HasSubstr("No space left on device"));
}

}}  // namespace holdfast::test
