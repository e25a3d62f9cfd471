#include "holdfast/checkpoint/receipt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

std::map<std::int64_t, double> recorded(std::int64_t from, std::int64_t to) {
  std::map<std::int64_t, double> losses;
  for (std::int64_t step = from; step <= to; ++step) losses[step] = 0.5 + static_cast<double>(step);
  return losses;
}

// A ledger with the losses 1/step of steps first..last, 1,000 in a line, and something else between the lines.
std::string long_ledger(std::int64_t first, std::int64_t last) {
  std::string text = "{\"event\":\"start\"}\n";
  for (std::int64_t from = first; from <= last; from += 1000) {
    text += R"({"event":"losses","from":)" + std::to_string(from) + R"(,"bits":")";
    for (std::int64_t step = from; step < from + 1000 && step <= last; ++step) {
      text += bits_hex(1.0 / static_cast<double>(step));
    }
    text += "\"}\n{\"event\":\"commit\",\"step\":" + std::to_string(from) + "}\n";
  }
  return text;
}

TEST(Receipt, SaysOnceThatAllStepsAgree) {
  CapturedLog log;
  Receipt receipt(recorded(1230, 1240), 1234, true);
  for (std::int64_t step = 1235; step <= 1250; ++step) receipt.compare(step, 0.5 + static_cast<double>(step));
  receipt.close();
  EXPECT_EQ(log.text(), "holdfast: resume verified: steps 1235..1240 bit-identical\n");
  EXPECT_EQ(receipt.outcome(), Receipt::Outcome::verified);
}

TEST(Receipt, ComparesTheFirstStepsOnly) {
  CapturedLog log;
  Receipt receipt(recorded(1, 1000), 10, true);
  for (std::int64_t step = 11; step <= 100; ++step) receipt.compare(step, 0.5 + static_cast<double>(step));
  EXPECT_EQ(log.text(), "holdfast: resume verified: steps 11..26 bit-identical\n");
}

TEST(Receipt, NamesTheFirstDifferenceWithBothValues) {
  CapturedLog log;
  Receipt receipt(recorded(11, 20), 10, true);
  receipt.compare(11, 11.5);
  receipt.compare(12, 12.500000000000002);
  receipt.compare(13, 0);
  receipt.close();
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("warning: resume differs: the loss of step 12 was 12.5 (4029000000000000)"));
  EXPECT_THAT(text, HasSubstr("12.500000000000002 (4029000000000001)"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(receipt.outcome(), Receipt::Outcome::differs);
}

TEST(Receipt, WithoutAPromiseADifferenceIsNoWarning) {
  CapturedLog log;
  Receipt receipt(recorded(11, 20), 10, false);
  receipt.compare(11, 0);
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("as announced"));
  EXPECT_THAT(text, testing::Not(HasSubstr("warning")));
}

TEST(Receipt, AnEarlyEndSaysWhatItSaw) {
  CapturedLog log;
  Receipt receipt(recorded(11, 20), 10, true);
  receipt.compare(11, 11.5);
  receipt.compare(12, 12.5);
  receipt.close();
  EXPECT_EQ(log.text(), "holdfast: resume verified: steps 11..12 bit-identical\n");
}

TEST(Receipt, NothingRecordedNothingSaid) {
  CapturedLog log;
  Receipt receipt(recorded(1, 10), 10, true);
  receipt.compare(11, 1);
  receipt.close();
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(receipt.outcome(), Receipt::Outcome::nothing_to_compare);
}

TEST(Receipt, GapsInTheRecordAreStepsNotCompared) {
  CapturedLog log;
  Receipt receipt({{12, 1.0}, {15, 2.0}}, 10, true);
  for (std::int64_t step = 11; step <= 14; ++step) receipt.compare(step, step == 12 ? 1.0 : 9.0);
  EXPECT_EQ(receipt.outcome(), Receipt::Outcome::pending);
  receipt.compare(15, 2.0);
  EXPECT_EQ(log.text(), "holdfast: resume verified: steps 12..15 bit-identical\n");
}

// Two million steps, of which the receipt of a resume compares sixteen.
TEST(Receipt, AResumeReadsLittleOfALongLedger) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(volume.options());
    run.train_to(4);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  const std::string ledger = volume.path("ledger-a0001.jsonl");
  volume.disk.put(ledger, long_ledger(5, 2'000'000));
  volume.faults.clear_log();
  Attempt next(volume.options());
  std::uint64_t read = 0;
  for (const Operation& operation : volume.faults.log()) {
    if (operation.kind != Op::read || operation.path != ledger) continue;
    read += operation.length;
    EXPECT_LE(operation.length, 1u << 20) << "read at once";
  }
  EXPECT_GT(read, 0u);
  EXPECT_LT(read, 8u << 20);
  next.step();
  EXPECT_THAT(log.text(), HasSubstr("resume differs: the loss of step 5 was 0.2 "));
}

}}  // namespace holdfast::test
