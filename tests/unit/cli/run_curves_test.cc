// What of several lives counts in the curves of a run.
#include "holdfast/cli/report/run_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/store/names.h"
#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

std::vector<double> measured_in(const std::vector<std::string>& ledgers) {
  MemoryFileSystem disk;
  const auto run = disk.open_directory("/run", true);
  for (std::size_t i = 0; i < ledgers.size(); ++i) disk.put("/run/" + ledger_name(i + 1), ledgers[i]);
  const auto lives = read_lives(*run);
  const RunCurves curves = curves_of(*run, lives, account_for(lives));
  std::vector<double> values;
  for (const auto& column : curves.measured.at("accuracy").columns()) {
    if (column.count > 0) values.push_back(column.max);
  }
  return values;
}

std::string accuracy(int step, const std::string& value) {
  return R"("step":)" + std::to_string(step) + R"(,"name":"accuracy","value":")" + value + '"';
}

// Stopped in the evaluation of step 200, which the next life makes; and one before the first step.
TEST(RunCurves, AnEvaluationThatComesAgainAfterAResumeCounts) {
  LedgerText first(1, 0, 0, 1000, 0, "a");
  first.line("metric", 0, accuracy(0, "0.1")).line("metric", 100, accuracy(100, "0.5"));
  first.commit(205, 200, 200).end(210, "interrupted", 75, 200);
  LedgerText second(2, 200, 1, 2000, 0, "b");
  second.line("metric", 30, accuracy(200, "0.93")).end(31, "complete", 0, 200);
  EXPECT_THAT(measured_in({first.text(), second.text()}), ElementsAre(0.1, 0.5, 0.93));
}

// What was computed again counts once.
TEST(RunCurves, AnEvaluationOfALostStepDoesNotCount) {
  LedgerText first(1, 0, 0, 1000, 0, "a");
  first.commit(55, 50, 50).line("metric", 100, accuracy(100, "0.5"));
  LedgerText second(2, 50, 1, 2000, 0, "b");
  second.line("metric", 60, accuracy(100, "0.6")).end(61, "complete", 0, 100);
  EXPECT_THAT(measured_in({first.text(), second.text()}), ElementsAre(0.6));
}

}}  // namespace holdfast::test
