// TensorBoard's own reader reads what tensorboard_sink() writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <set>

#include "holdfast/metrics/event_file.h"
#include "holdfast/metrics/exporters.h"
#include "support/captured_log.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/foreign_python.h"
#include "support/memory_file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Prints, for each tag: its steps and values, as TensorBoard shows them.
constexpr const char* kReader = R"(
import glob, sys, tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
everything = {"scalars": 0, "tensors": 0, "histograms": 0}
run = EventAccumulator(sys.argv[1], size_guidance=everything).Reload()
for tag in run.Tags()["scalars"]:
    events = run.Scalars(tag)
    steps = [event.step for event in events]
    assert all(a < b for a, b in zip(steps, steps[1:])), f"{tag}: steps do not increase: {steps}"
    print(tag, *(f"{event.step}={event.value:g}" for event in events))
for tag in run.Tags()["histograms"]:
    for event in run.Histograms(tag):
        histogram = event.histogram_value
        print(tag, event.step, histogram.min, histogram.max, histogram.num, histogram.sum, histogram.sum_squares,
              *histogram.bucket_limit, *histogram.bucket)
for path in glob.glob(sys.argv[1] + "/*"):
    for record in RawEventFileLoader(path).Load():
        Event.FromString(record)
print("read by tensorboard", tensorboard.__version__, file=sys.stderr)
)";

const ForeignPython& python() {
  static const ForeignPython found("tensorboard");
  return found;
}

std::string read_by_tensorboard(const std::filesystem::path& folder) {
  const Ended ended = python().run({"-c", kReader, folder.string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("read by tensorboard"));
  return ended.out;
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(EventFile, ComputesTheChecksumOfTheStandard) { EXPECT_EQ(crc32c("123456789"), 0xe3069283U); }

TEST(EventFile, ARecordHasItsLengthAndBothChecksums) {
  MemoryFileSystem disk;
  EventFile file(disk, "/tb", WallTime(std::chrono::seconds(1'700'000'000)));
  const std::string text = disk.get_text(file.path());
  ASSERT_EQ(text.size(), 8 + 4 + 24 + 4U);
  EXPECT_EQ(text.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(text.substr(12, 9), std::string("\x09\0\0\0\x40\xfc\x54\xd9\x41", 9)) << "wall time, fixed64";
  EXPECT_EQ(text.substr(21, 15),
            "\x1a\x0d"
            "brain.Event:2");
  // Computed by tensorboard's own record writer.
  EXPECT_EQ(text.substr(8, 4), std::string("\xa3\x7f\x4b\x22", 4));
}

TEST(EventFile, EachAttemptHasItsOwnFileAndAWrongClockKeepsTheirOrder) {
  MemoryFileSystem disk;
  const WallTime now(std::chrono::seconds(1'700'000'000));
  const EventFile first(disk, "/tb", now);
  const EventFile second(disk, "/tb", now);
  const EventFile third(disk, "/tb", now - 24h);
  EXPECT_LT(first.path(), second.path());
  EXPECT_LT(second.path(), third.path());
  EXPECT_THAT(first.path().string(), HasSubstr("/tb/events.out.tfevents.1700000000."));
}

class TensorBoard : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!python()) GTEST_SKIP() << python().why_not();
  }

  static StepEvent step(std::int64_t number) {
    return {.step = number,
            .samples = 16 * number,
            .loss = 1.0 / static_cast<double>(number),
            .learning_rate = 0.5};
  }
  std::unique_ptr<MetricSink> sink() const {
    return tensorboard_sink(FileSystem::real(), folder_.path() / "tb");
  }
  std::string read() const { return read_by_tensorboard(folder_.path() / "tb"); }

  TemporaryFolder folder_;
};

TEST_F(TensorBoard, ReadsEveryTag) {
  const auto sink = this->sink();
  sink->begin({.step = 0, .attempt = 1});
  StepEvent first = step(1);
  first.accuracy = 0.25;
  sink->step(first);
  StepEvent second = step(2);
  second.images_per_s = 1830;
  second.saved =
      SavedEvent{.step = 1, .bytes = 188, .blocked = 21ms, .write = 200ms, .commit = 50ms, .risk_time = 15s};
  sink->step(second);
  sink->evaluation({.step = 2, .accuracy = 0.75, .loss = 1.5});
  sink->system({.cpu_cores = 1.5,
                .resident_bytes = 4096,
                .read_bytes_per_s = 1e6,
                .written_bytes_per_s = 3e6,
                .gpus = {{.index = 1, .memory_used = 1024, .memory_total = 2048, .utilization = 0.5}}});
  sink->histogram({.step = 2,
                   .name = "weights/fc",
                   .min = -1,
                   .max = 3,
                   .count = 4,
                   .sum = 2,
                   .sum_of_squares = 10,
                   .limits = {0, 1, 3},
                   .counts = {1, 2, 1}});
  sink->end({});
  sink->flush();
  const std::string text = read();
  for (const char* line :
       {"train/loss 1=1 2=0.5\n", "train/lr 1=0.5 2=0.5\n", "train/accuracy 1=0.25\n",
        "train/images_per_second 1=0 2=1830\n", "train/epoch 1=0 2=0\n", "val/accuracy 2=0.75\n",
        "val/loss 2=1.5\n", "checkpoint/commit_seconds 1=0.25\n",
        "checkpoint/training_waited_seconds 1=0.021\n", "checkpoint/bytes 1=188\n",
        "checkpoint/work_at_risk_seconds 1=15\n", "system/cpu_cores 2=1.5\n",
        "system/resident_bytes 2=4096\n", "system/disk_read_megabytes_per_second 2=1\n",
        "system/disk_written_megabytes_per_second 2=3\n", "system/gpu1_memory_bytes 2=1024\n",
        "system/gpu1_utilization 2=0.5\n", "weights/fc 2 -1.0 3.0 4.0 2.0 10.0 0.0 1.0 3.0 1.0 2.0 1.0\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(TensorBoard, DropsWhatADeadAttemptWroteBeyondTheCheckpoint) {
  // Each attempt resumes at a checkpoint older than what the one before has written.
  const std::vector<std::pair<std::int64_t, std::int64_t>> attempts{{0, 40}, {25, 60}, {60, 61}, {30, 100}};
  std::uint64_t number = 0;
  for (const auto& [from, to] : attempts) {
    const auto sink = this->sink();
    sink->begin({.step = from, .attempt = ++number});
    for (std::int64_t at = from + 1; at <= to; ++at) {
      StepEvent event = step(at);
      event.learning_rate = static_cast<double>(number);
      sink->step(event);
      if (at % 10 == 0) sink->evaluation({.step = at, .accuracy = static_cast<double>(number)});
      sink->system({.cpu_cores = 1});
    }
    sink->flush();
    // As if the process was killed here: no end(), and half a record.
    if (number < 4) {
      const auto newest = *names_in(folder_.path() / "tb").rbegin();
      const std::string path = folder_.path() / "tb" / newest;
      write_text(path, read_text(path) + "\x18\0\0");
    }
  }
  std::string losses = "train/loss";
  for (int at = 1; at <= 100; ++at) {
    char text[40];
    std::snprintf(text, sizeof text, " %d=%g", at, static_cast<double>(static_cast<float>(1.0 / at)));
    losses += text;
  }
  const std::string text = read();
  EXPECT_THAT(text, HasSubstr(losses + '\n'));
  EXPECT_THAT(text, HasSubstr(" 25=1 26=2 27=2 28=2 29=2 30=2 31=4 "));
  EXPECT_THAT(text, HasSubstr("val/accuracy 10=1 20=1 30=2 40=4 50=4 60=4 70=4 80=4 90=4 100=4\n"));
}

TEST_F(TensorBoard, AnEvaluationThatComesAgainIsThereOnce) {
  {
    const auto sink = this->sink();
    sink->begin({.step = 0, .attempt = 1});
    StepEvent first = step(1);
    first.accuracy = 0.75;
    first.images_per_s = 7;
    sink->step(first);
    sink->evaluation({.step = 1, .accuracy = 0.5});
  }
  const auto sink = this->sink();
  sink->begin({.step = 1, .attempt = 2, .loss = 1, .learning_rate = 0.25, .evaluation_due = true});
  sink->evaluation({.step = 1, .accuracy = 0.5});
  sink->step(step(2));
  sink->flush();
  EXPECT_THAT(read(), HasSubstr("train/loss 1=1 2=0.5\n"));
  EXPECT_THAT(read(), HasSubstr("train/lr 1=0.5 2=0.5\n")) << "what was written stays";
  EXPECT_THAT(read(), HasSubstr("train/accuracy 1=0.75\n"));
  EXPECT_THAT(read(), HasSubstr("train/images_per_second 1=7 2=0\n"));
  EXPECT_THAT(read(), HasSubstr("train/epoch 1=0 2=0\n"));
  EXPECT_THAT(read(), HasSubstr("val/accuracy 1=0.5\n"));
}

TEST_F(TensorBoard, ReadsLossesThatAreNoNumbers) {
  const auto sink = this->sink();
  StepEvent event = step(1);
  event.loss = std::numeric_limits<double>::quiet_NaN();
  sink->step(event);
  event.step = 2;
  event.loss = std::numeric_limits<double>::infinity();
  sink->step(event);
  sink->flush();
  EXPECT_THAT(read(), HasSubstr("train/loss 1=nan 2=inf\n"));
}

TEST(TensorBoardSink, TheUmaskDecidesWhoReadsTheFiles) {
  TemporaryFolder folder;
  const auto mode = [](const std::filesystem::path& of) {
    return static_cast<unsigned>(std::filesystem::status(of).permissions());
  };
  umask(027);
  tensorboard_sink(FileSystem::real(), folder.path() / "run/tb")->begin({});
  umask(022);
  EXPECT_EQ(mode(folder.path() / "run/tb"), 0750u);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() / "run/tb")) {
    EXPECT_EQ(mode(entry.path()), 0640u);
  }
}

TEST(TensorBoardSink, WritesAtACommitAndAfterTenSeconds) {
  MemoryFileSystem disk;
  FaultFileSystem fs(disk);
  FakeClock clock;
  const auto sink = tensorboard_sink(fs, "/tb", {}, clock);
  sink->begin({});
  const auto before = fs.count(Op::write);
  for (int i = 1; i <= 100; ++i) sink->step({.step = i});
  EXPECT_EQ(fs.count(Op::write), before) << "buffered";
  clock.advance(10s);
  sink->step({.step = 101});
  EXPECT_EQ(fs.count(Op::write), before + 1);
  sink->step({.step = 102, .saved = SavedEvent{.step = 100}});
  EXPECT_EQ(fs.count(Op::write), before + 2);
}

TEST(TensorBoardSink, AFullDiskIsSaidOnceAndTrainingGoesOn) {
  MemoryFileSystem disk;
  FaultFileSystem fs(disk);
  const auto sink = tensorboard_sink(fs, "/tb");
  sink->begin({});
  fs.fail(Op::write, 1, ENOSPC, {.for_ever = true});
  CapturedLog log;
  for (int i = 1; i <= 5; ++i) {
    sink->step({.step = i});
    sink->flush();
  }
  const std::string said = log.text();
  EXPECT_THAT(
      said,
      HasSubstr("warning: no more metrics are written to /tb (training goes on): write /tb/events.out"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

}}  // namespace holdfast::test
