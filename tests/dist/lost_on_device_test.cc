// A rank is lost while the others wait for a device whose collectives never return, as NCCL's do. They end
// soon, name the lost rank, and commit nothing that was computed after the loss.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "dist/ranks.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

// The goal is 12 s; this is for slow machines, and below the 30 s after which a launcher kills.
constexpr auto kUntilAllHaveEnded = 25s;

Words device(const std::filesystem::path& run, const Words& more = {}) {
  Words words = {HOLDFAST_DEVICE_PROGRAM, run.string(), "20"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string last_line_of(const std::string& text) {
  const auto lines = lines_of(text);
  return lines.empty() ? "" : lines.back();
}

// One text of each rank that survives: beside the run's records, and of ranks other than 0 in TMPDIR.
std::vector<std::string> evidence_in(const std::filesystem::path& folder) {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name == "1.stall.txt" || name.starts_with("holdfast-stall-"))
      texts.push_back(read_text(entry.path()));
  }
  EXPECT_EQ(texts.size(), 2U);
  return texts;
}

class LostOnDevice : public testing::Test {
 protected:
  // One life of so many ranks, of which `lost` kills itself.
  struct Life {
    Life(int ranks, int lost_rank, const Words& words, const Environment& more = {})
        : meeting(ranks), lost(lost_rank) {
      for (int rank = 0; rank < ranks; ++rank) {
        Environment variables = meeting.of_rank(rank);
        for (const auto& [name, value] : more) variables[name] = value;
        all.push_back(std::make_unique<Subprocess>(words, variables));
      }
    }
    Subprocess& survivor() { return *all[lost == 0 ? 1 : 0]; }
    // All but the lost one end by themselves and name it in their last line. Returns how long after its end.
    std::chrono::duration<double> all_end() {
      EXPECT_EQ(all[static_cast<std::size_t>(lost)]->wait(5min).signal, SIGKILL);
      const auto began = std::chrono::steady_clock::now();
      for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (rank == static_cast<std::size_t>(lost)) continue;
        const Ended ended = all[rank]->wait(5min);
        EXPECT_EQ(ended.signal, 0) << "rank " << rank << ": " << ended.err;
        EXPECT_EQ(ended.exit_code, 75) << "rank " << rank << ": " << ended.err;
        EXPECT_THAT(last_line_of(ended.err), HasSubstr("rank " + std::to_string(lost) + " died"))
            << "rank " << rank << ": " << ended.err;
      }
      return std::chrono::steady_clock::now() - began;
    }
    Meeting meeting;
    int lost;
    std::vector<std::unique_ptr<Subprocess>> all;
  };
  // The next life begins at that step with the right bits, and completes.
  void goes_on_from(const std::string& step) const {
    EXPECT_EQ(not_whole(run()), "");
    const Ended ended = launch(2, device(run()));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, 2, "resumed"), ElementsAre(step + " whole", step + " whole"));
    EXPECT_THAT(said(ended, 2, "state"), ElementsAre("20 whole", "20 whole"));
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }

 private:
  const TemporaryFolder folder_;
};

TEST_F(LostOnDevice, TheOthersEndSoonAndNameIt) {
  for (const int lost : {1, 0}) {
    const TemporaryFolder folder;
    Life life(3, lost, device(folder.path() / "run", {"kill=" + std::to_string(lost) + ":8"}),
              {{"TMPDIR", folder.path().string()}});
    EXPECT_LT(life.all_end(), kUntilAllHaveEnded) << "rank " << lost << " lost";
    EXPECT_THAT(
        evidence_in(folder.path()),
        Each(AllOf(
            HasSubstr("= NCCL's watch ends this training: rank " + std::to_string(lost) + " died"),
            HasSubstr("\nsigns of life, as rank 0 told them "),
            ContainsRegex("\nvotes: this rank's newest is number"),
            ContainsRegex("-- stacks\nthread [0-9]+\n  #0 [^\n]*libc.so.6\\+0x(.|\n)*dist_device\\+0x"))));
  }
}

// The launcher's SIGTERM comes at once, and its SIGKILL after the grace.
TEST_F(LostOnDevice, NoLauncherHasToKill) {
  Words words = {HOLDFAST_BIN_DIR "/holdfast", "launch", "--nproc", "2", "--"};
  for (const std::string& word : device(run(), {"kill=1:8"})) words.push_back(word);
  const Ended ended = Subprocess(words, {{"OMP_NUM_THREADS", "1"}}).wait(5min);
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL) << ended.err;  // rank 1's
  EXPECT_THAT(ended.err, testing::Not(HasSubstr("did not end: killed")));
  EXPECT_THAT(ended.err, HasSubstr("rank 1 died"));
  goes_on_from("5");
}

// A write of 16 seconds; the loss is known after about eight.
TEST_F(LostOnDevice, ASaveInFlightBecomesDurable) {
  Life life(2, 1, device(run(), {"kill=1:7", "elements=4000000", "limit=2"}));
  life.all_end();
  const Ended verified = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "verify", run().string()}).wait();
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  int count = 0;
  EXPECT_EQ(not_whole(run(), &count), "");
  EXPECT_EQ(count, 1);
}

// The copy of step 10 lies behind the kernel that never ends.
class CopyBehindTheKernel : public LostOnDevice {
 protected:
  static Words words(const std::filesystem::path& run, const Words& more) {
    Words all = {"kill=1:10", "durable=5"};
    all.insert(all.end(), more.begin(), more.end());
    return device(run, all);
  }
  // The case took place.
  static void began(Life& life) {
    EXPECT_TRUE(life.survivor().wait_until(
        [&] { return life.survivor().out().find("saved 10\n") != std::string::npos; }, 5min));
  }
};

TEST_F(CopyBehindTheKernel, NothingComputedAfterTheLossIsCommitted) {
  Life life(2, 1, words(run(), {"patience=3"}));
  began(life);
  life.all_end();
  goes_on_from("5");
}

TEST_F(CopyBehindTheKernel, ThisTestWouldNoticeAnEarlyAbort) {
  Life life(2, 1, words(run(), {"abort=early"}));
  began(life);
  life.all_end();
  const Ended ended = launch(2, device(run()));
  EXPECT_THAT(said(ended, 2, "resumed"), ElementsAre("10 wrong", "10 wrong")) << ended.err;
}

TEST_F(CopyBehindTheKernel, ASignalThatAsksToStopShortensItsTime) {
  Life life(2, 1, words(run(), {"patience=100000"}), {{"HOLDFAST_TERM_GRACE", "5s"}});
  began(life);
  life.survivor().send(SIGTERM);
  life.all_end();
  goes_on_from("5");
}

}}  // namespace holdfast::test
