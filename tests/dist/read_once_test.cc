// Processes of one machine that resume together: one of them reads the checkpoint. What befalls it, or keeps
// the others from its memory, costs no start.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "dist/ranks.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;

namespace fs = std::filesystem;

constexpr int kSteps = 6;
constexpr auto kAllEnd = 5min;
// 40 MB: more than the 16 MB from which a file is read past the page cache.
constexpr char kFloats[] = "floats=10000000";
// Of the file, by all ranks. Rank 0 looks at heads several times, which takes some MB whatever the file's
// size.
constexpr double kOnce = 1.25;

class ReadOnce : public testing::Test {
 protected:
  Words story_of(int steps) const { return story(run_, steps, {"every=3", kFloats}); }
  // Leaves the checkpoints of steps 3 and 6. Tests with as many ranks as the last one share them.
  void first_life(int ranks) {
    if (static_cast<int>(end_.size()) != ranks) {
      begun_ = std::make_unique<TemporaryFolder>();
      const Ended first = launch(ranks, story(begun_->path() / "run", kSteps, {"every=3", kFloats}));
      ASSERT_EQ(first.exit_code, 0) << first.err;
      end_ = said(first, ranks, "state");
      ASSERT_THAT(end_, SizeIs(ranks));
    }
    fs::copy(begun_->path() / "run", run_, fs::copy_options::recursive);
    for (const auto& entry : fs::directory_iterator(run_)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-") && name > newest_.filename().string()) newest_ = entry.path();
    }
    ASSERT_GT(fs::file_size(newest_), 16u << 20);
  }
  static std::uint64_t read_by_all(const Words& read) {
    std::uint64_t bytes = 0;
    for (const std::string& one : read) bytes += std::stoull(one);
    return bytes;
  }
  void all_have_read_once(const Ended& ended, int ranks) const {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(said(ended, ranks, "resumed"), AllOf(SizeIs(ranks), Each("6 exact"))) << ended.err;
    EXPECT_EQ(said(ended, ranks, "state"), end_);
    const Words read = said(ended, ranks, "read");
    ASSERT_THAT(read, SizeIs(ranks)) << ended.out;
    const auto file = static_cast<double>(fs::file_size(newest_));
    EXPECT_LE(static_cast<double>(read_by_all(read)), kOnce * file) << ended.out;
  }
  // Two ranks, each with a command of its own before the program's.
  std::vector<Ended> two(const Words& before_zero, const Words& before_one) const {
    const Meeting meeting;
    std::vector<std::unique_ptr<Subprocess>> ranks;
    for (const int rank : {0, 1}) {
      Words words = rank == 0 ? before_zero : before_one;
      for (const std::string& word : story_of(kSteps)) words.push_back(word);
      ranks.push_back(std::make_unique<Subprocess>(words, meeting.of_rank(rank)));
    }
    std::vector<Ended> ended;
    ended.reserve(ranks.size());
    for (const auto& rank : ranks) ended.push_back(rank->wait(kAllEnd));
    return ended;
  }
  static bool works(Words command) {
    command.emplace_back("true");
    return Subprocess(command).wait().exit_code == 0;
  }
  // At one of its reads of the file.
  Words struck_while_it_reads(const std::string& signal) const {
    return {"/usr/bin/env", "strace",        "-f", "-qq",
            "-o",           "/dev/null",     "-P", newest_.string(),
            "-e",           "trace=pread64", "-e", "inject=pread64:signal=" + signal + ":when=4"};
  }

  static void TearDownTestSuite() { begun_.reset(); }

  static inline std::unique_ptr<TemporaryFolder> begun_;
  static inline Words end_;  // of it
  TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "run";
  fs::path newest_;
};

TEST_F(ReadOnce, FourRanksOfAMachineReadTheFileOnce) {
  first_life(4);
  all_have_read_once(launch(4, story_of(kSteps)), 4);
}

TEST_F(ReadOnce, AnotherNumberOfRanksReadsItOnce) {
  first_life(2);
  const Ended more = launch(3, story_of(kSteps));
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_THAT(said(more, 3, "resumed"), AllOf(SizeIs(3), Each("6 not-exact"))) << more.err;
  EXPECT_LE(static_cast<double>(read_by_all(said(more, 3, "read"))),
            kOnce * static_cast<double>(fs::file_size(newest_)));
}

// Docker gives a container 64 MiB there; the image needs none of it.
TEST_F(ReadOnce, ASmallShmFolderIsEnough) {
  Words command = {"/usr/bin/env",
                   "unshare",
                   "-m",
                   "sh",
                   "-c",
                   "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"",
                   "sh"};
  if (!works(command)) GTEST_SKIP() << "no mounts of its own here";
  first_life(2);
  for (const std::string& word : story_of(kSteps)) command.push_back(word);
  all_have_read_once(launch(2, command), 2);
}

TEST_F(ReadOnce, ARankInAnotherContainerReadsItselfAndTheLogSaysSo) {
  const Words container = {"/usr/bin/env", "unshare", "--pid", "--fork", "--mount-proc"};
  if (!works(container)) GTEST_SKIP() << "no PID namespaces here";
  first_life(2);
  const std::vector<Ended> ended = two({}, container);
  const auto file = static_cast<double>(fs::file_size(newest_));
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ended[rank].exit_code, 0) << ended[rank].err;
    EXPECT_THAT(said_alone(ended[rank], "resumed"), testing::ElementsAre("6 exact")) << ended[rank].err;
    EXPECT_EQ(said_alone(ended[rank], "state"), Words{end_[rank]});
    EXPECT_GE(static_cast<double>(read_by_all(said_alone(ended[rank], "read"))), 0.95 * file) << rank;
  }
  EXPECT_THAT(ended[0].err, HasSubstr("rank 1 does not take the checkpoint from rank 0's memory"));
}

TEST_F(ReadOnce, AllGoOnFromTheOlderFileIfTheNewestIsDamaged) {
  first_life(2);
  {
    std::fstream file(newest_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(newest_) / 2));
    file.write("damage", 6);
  }
  const Ended next = launch(2, story_of(kSteps));
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(said(next, 2, "resumed"), AllOf(SizeIs(2), Each("3 exact"))) << next.err;
  EXPECT_EQ(said(next, 2, "state"), end_);
  EXPECT_THAT(next.err, HasSubstr("skipped " + newest_.filename().string()));
}

TEST_F(ReadOnce, TheRankThatReadsIsKilledAndNothingIsLost) {
  first_life(2);
  if (!works(struck_while_it_reads("KILL"))) GTEST_SKIP() << "strace (5.16 or newer) cannot trace here";
  const std::vector<Ended> ended = two(struck_while_it_reads("KILL"), {});
  EXPECT_NE(ended[0].exit_code, 0) << ended[0].err;
  EXPECT_THAT(said_alone(ended[0], "resumed"), SizeIs(0)) << "it was to be killed before";
  EXPECT_EQ(ended[1].exit_code, 75) << ended[1].err;
  EXPECT_THAT(ended[1].err, HasSubstr("rank 0"));
  all_have_read_once(launch(2, story_of(kSteps)), 2);
}

TEST_F(ReadOnce, TheRankThatReadsIsToldToStopAndNothingIsLost) {
  first_life(2);
  if (!works(struck_while_it_reads("TERM"))) GTEST_SKIP() << "strace (5.16 or newer) cannot trace here";
  const std::vector<Ended> ended = two(struck_while_it_reads("TERM"), {});
  for (const Ended& one : ended) EXPECT_THAT(one.exit_code, testing::AnyOf(0, 75)) << one.err;
  EXPECT_EQ(ended[0].exit_code, ended[1].exit_code);
  EXPECT_EQ(not_whole(run_), "");
  all_have_read_once(launch(2, story_of(kSteps)), 2);
}

}}  // namespace holdfast::test
