// What ranks share beside their gradients, between real processes over Gloo on the loopback device: an
// optimizer's slots, the statistics of batch norms, what a scaler found. And that a training ends where
// Python's ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dist/until_all_ended.h"
#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::Each;
using testing::ElementsAre;
using testing::MatchesRegex;
using testing::SizeIs;
using testing::StartsWith;

using Words = std::vector<std::string>;

// What each rank said, without its prefix.
std::vector<Words> said_by(int ranks, const std::string& scenario) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", std::to_string(ranks),
                                  "--", HOLDFAST_SHARD_PROGRAM, scenario},
                                 std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}})
                          .wait(10min);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  std::vector<Words> said(static_cast<std::size_t>(ranks));
  for (const std::string& line : lines_of(ended.out)) {
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string prefix = "[" + std::to_string(rank) + "] ";
      if (line.starts_with(prefix))
        said[static_cast<std::size_t>(rank)].push_back(line.substr(prefix.size()));
    }
  }
  return said;
}

// Three: sums of two ranks are the same in any order.
std::vector<int> both_by_night() { return nightly() ? std::vector{2, 3} : std::vector{3}; }

TEST(Sharded, TrainsAsPythonsDistributedDataParallel) {
  const auto said = said_by(2, "python");
  ASSERT_THAT(said[0], SizeIs(1));
  EXPECT_THAT(said[0][0], StartsWith("worst 0.000000 "));  // six digits: within 1e-6
  EXPECT_EQ(said[1], said[0]) << "ranks differ after 100 steps";
}

// Adam's kernels round a tensor's last elements otherwise, and shares end elsewhere; sums over three ranks
// are rounded in another order than all-reduce's.
TEST(Sharded, AnOptimizerInSharesComputesAsAWholeOne) {
  for (const int ranks : both_by_night()) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto said = said_by(ranks, "whole");
    std::vector<testing::Matcher<std::string>> expected;
    for (const std::string name : {"sgd", "adam", "lamb", "clipped_lamb", "other_lamb", "adamw"}) {
      const std::string averaged = name == "sgd" ? "same" : "(same|close)";
      const std::string reduced = name == "sgd" && ranks == 2 ? "same" : "(same|close)";
      expected.push_back(MatchesRegex(name + " averaged " + averaged + " a share [0-9a-f]+"));
      expected.push_back(MatchesRegex(name + " reduced " + reduced + " a share [0-9a-f]+"));
    }
    EXPECT_THAT(said[0], testing::ElementsAreArray(expected));
    EXPECT_THAT(said, Each(said[0])) << "ranks differ";
  }
}

TEST(Sharded, AnyNumberOfRanksGoesOnWithACheckpoint) {
  const auto close = [](const std::string& name) {
    return MatchesRegex(name + " (same|close) (same|close)");
  };
  EXPECT_THAT(said_by(3, "worlds"),
              Each(ElementsAre("sgd same same", close("adam"), close("lamb"), close("clipped_lamb"),
                               close("other_lamb"), close("adamw"))));
}

TEST(Sharded, AnInterruptedTrainingGoesOnToTheBit) {
  for (const int ranks : both_by_night()) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto said = said_by(ranks, "resumes");
    EXPECT_THAT(said[0],
                testing::AllOf(SizeIs(12), Each(MatchesRegex("[a-z_]+ (averaged|reduced) same [0-9a-f]+"))));
    EXPECT_THAT(said, Each(said[0])) << "ranks differ";
  }
}

TEST(Sharded, AGradientsNormIsThatOfAllShares) {
  EXPECT_THAT(said_by(3, "clips"), Each(ElementsAre("norm clipped close close close")));
}

TEST(Sharded, AnOverflowOnOneRankIsOneOfAll) {
  const auto said = said_by(3, "overflows");
  for (const Words& lines : said) {
    ASSERT_THAT(lines, SizeIs(2));
    EXPECT_EQ(lines[0], "agreed 1 512 as before");
  }
  EXPECT_EQ(said[0][1], "alone 1 512 updated");  // without agreement: this test would notice
  EXPECT_EQ(said[1][1], "alone 0 1024 updated");
}

TEST(Sharded, BatchNormsSeeTheWholeBatch) {
  for (const int ranks : both_by_night()) {
    const auto said = said_by(ranks, "normalizes");
    EXPECT_THAT(said[0],
                testing::AllOf(SizeIs(3), Each(MatchesRegex("close close close close same keys [0-9a-f]+"))));
    EXPECT_THAT(said, Each(said[0])) << "ranks differ";
  }
}

// With a fake in the place of NCCL, which does not answer any more. Whether the training thread ever comes
// back from the device or not, whoever is gone is named, and the exit code is true.
TEST(Sharded, WhoDiesWhileOthersWaitForTheirGpuIsNamed) {
  std::vector<std::string> scenarios = {"device hangs"};
  if (nightly()) scenarios.emplace_back("device returns");
  for (const std::string& scenario : scenarios) {
    const TemporaryFolder folder;
    std::vector<std::string> command = {HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "3", "--"};
    for (const std::string& word : until_all_ended(3, folder.path())) command.push_back(word);
    command.insert(command.end(), {HOLDFAST_SHARD_PROGRAM, scenario});
    const Ended ended = Subprocess(command).wait(10min);
    EXPECT_EQ(ended.signal, 0) << scenario << " does not end";
    for (const std::string rank : {"0", "2"}) {
      EXPECT_THAT(ended.err,
                  testing::ContainsRegex(
                      "rank " + rank +
                      "\\]: error: (rank 1 died, hangs or cannot be reached|.*no answer came from rank 1 )"))
          << scenario;
      EXPECT_EQ(read_text(folder.path() / ("over" + rank)), "75\n") << scenario << ended.err;
    }
    EXPECT_THAT(ended.err, testing::HasSubstr(scenario == "device returns"
                                                  ? "(gradients: a collective of NCCL did not end"
                                                  : "waited for its GPU (a collective of NCCL"))
        << scenario;
  }
}

}}  // namespace holdfast::test
