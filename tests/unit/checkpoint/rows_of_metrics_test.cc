// Rows of metrics of the steps that a checkpoint holds survive a power cut with it (commit_after()), and a
// metrics disk that fails or hangs costs no save.
#include <cerrno>
#include <thread>

#include "holdfast/metrics/background.h"
#include "holdfast/metrics/csv.h"
#include "holdfast/metrics/csv_row.h"
#include "holdfast/metrics/exporters.h"
#include "rig.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

constexpr const char* kCsv = "/vol/training.csv";

// The steps that have a whole row.
std::vector<std::int64_t> rows_on(const MemoryFileSystem& disk) {
  std::vector<std::int64_t> steps;
  if (!disk.exists(kCsv)) return steps;
  for (const std::string& line : lines_of(disk.get_text(kCsv))) {
    if (const auto row = parse_csv_row(line); row && row->whole) steps.push_back(row->step);
  }
  return steps;
}

std::vector<std::int64_t> until(std::int64_t last) {
  std::vector<std::int64_t> steps;
  for (std::int64_t step = 1; step <= last; ++step) steps.push_back(step);
  return steps;
}

void expect_once(const std::string& log, const std::string& text) {
  const auto first = log.find(text);
  EXPECT_TRUE(first != std::string::npos && first == log.rfind(text)) << log;
}

void begin(MetricSink& sink, Attempt& run) {
  sink.begin({.step = run.source.step(), .attempt = run.checkpointer.attempt()});
  run.checkpointer.commit_after(sink.row_sync());
}

// The row before the save, as a Trainer does it. Waits for the save, if this step has one.
void train(MetricSink& sink, Attempt& run) {
  const StepReport report = run.source.train();
  sink.step({.step = run.source.step() + 1, .loss = *report.loss});
  if (run.checkpointer.after_step(report).saved) {
    EXPECT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  }
}

TEST(RowsOfMetrics, APowerCutLeavesTheRowsOfEveryDurableStep) {
  Volume volume;
  for (std::int64_t life = 1; life <= 2; ++life) {
    Attempt run(volume.options({SaveEvery::steps(3)}));
    CsvSink sink(volume.faults, kCsv, {}, volume.clock);
    begin(sink, run);
    const std::int64_t last = run.source.step() + 5;
    while (run.source.step() < last) {
      train(sink, run);
      const std::int64_t durable = std::max<std::int64_t>(run.checkpointer.last_durable().step, 0);
      EXPECT_EQ(rows_on(volume.disk.crash()), until(durable));
    }
    EXPECT_EQ(rows_on(volume.disk), until(last));
    volume.disk = volume.disk.crash();
    volume.disk.mount("/vol");
  }
}

TEST(RowsOfMetrics, PointsThatAnotherThreadWritesAreDurableToo) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  std::vector<std::unique_ptr<MetricSink>> sinks;
  sinks.push_back(tensorboard_sink(volume.faults, "/vol/tb", {}, volume.clock));
  BackgroundSinks sink(std::move(sinks), {.look_every = std::chrono::hours(1)});
  begin(sink, run);
  std::size_t before = 0;
  for (int step = 0; step < 3; ++step) {
    train(sink, run);
    const MemoryFileSystem left = volume.disk.crash();
    const std::vector<std::string> files = left.names("/vol/tb");
    ASSERT_EQ(files.size(), 1U);
    const std::vector<std::byte> points = left.get("/vol/tb/" + files[0]);
    EXPECT_GT(points.size(), before);
    EXPECT_EQ(points, volume.disk.get("/vol/tb/" + files[0]));
    before = points.size();
  }
}

TEST(RowsOfMetrics, ASyncThatFailsIsSaidOnceAndCostsNoSave) {
  Volume volume;
  MemoryFileSystem other;
  other.open_directory("/vol", true);
  FaultFileSystem sick(other);
  CapturedLog log;
  Attempt run(volume.options({SaveEvery::steps(1)}));
  CsvSink sink(sick, kCsv, {}, volume.clock);
  begin(sink, run);
  sick.fail(Op::sync_file, 1, EIO, {.for_ever = true});
  for (int step = 0; step < 3; ++step) train(sink, run);
  EXPECT_FALSE(sink.failed()) << "its rows are written on";
  expect_once(log.text(), "their checkpoint survives (training goes on): fsync");
}

TEST(RowsOfMetrics, ADiskThatHangsHoldsUpOneSaveForTwoSecondsAndNoEnd) {
  static Gate gate;  // the thread that is left behind uses it
  Volume volume;
  CapturedLog log;
  const auto began = std::chrono::steady_clock::now();
  {
    Attempt run(volume.options({SaveEvery::steps(1)}));
    run.checkpointer.commit_after([] { gate.pass(); });
    run.train_to(5);
    EXPECT_EQ(run.checkpointer.last_durable().step, 5);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8));
  expect_once(log.text(), "they are not synced within 2");
  gate.open();
}

}}  // namespace holdfast::test
