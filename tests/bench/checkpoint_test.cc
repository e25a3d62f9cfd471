// bench_checkpoint on a tiny state: it measures every part, writes what programs and people can read, leaves
// nothing behind, and says in one line what stops it. No figure is judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "holdfast/io/mount_information.h"
#include "support/loop_volume.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Ended bench(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(HOLDFAST_BIN_DIR) + "/bench_checkpoint");
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(4));
}

bool in_memory(const std::filesystem::path& path) {
  const auto mount = mount_of(std::filesystem::canonical(path));
  return mount && (mount->type == "tmpfs" || mount->type == "ramfs");
}

// $TMPDIR may lie in memory; where the build lies is a disk more often.
std::filesystem::path disk() { return std::filesystem::path(HOLDFAST_BIN_DIR).parent_path(); }

void expect_one_line(const Ended& ended, const std::string& words) {
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(lines_of(ended.err), SizeIs(1)) << ended.err;
  EXPECT_THAT(ended.err, AllOf(StartsWith("bench_checkpoint: "), HasSubstr(words)));
}

TEST(BenchCheckpoint, MeasuresEveryPartOfATinyState) {
  if (in_memory(disk())) GTEST_SKIP() << "the build lies in memory, and nothing is durable there";
  const TemporaryFolder folder(disk());
  const std::string output = folder.path() / "result";
  const Ended ended =
      bench({"--quick", "--no-peers", "--directory", folder.path().string(), "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;

  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  std::set<std::string> parts;
  std::set<std::string> keys;
  for (const auto& section : all["sections"]) {
    parts.insert(section["part"].get<std::string>());
    for (const auto& row : section["rows"]) {
      keys.insert(row["key"].get<std::string>());
      if (row["key"] == "shared.messages") {
        EXPECT_EQ(row["value"], 3);  // whatever the state's size
      }
      EXPECT_TRUE(row["value"].is_number()) << row;
      EXPECT_EQ(row.contains("goal"), row.contains("verdict")) << row;
    }
  }
  EXPECT_THAT(parts,
              IsSupersetOf({"commit", "shared", "stolen", "restore", "flat", "memory", "training", "split"}));
  EXPECT_THAT(keys, IsSupersetOf({"durable.ceiling", "durable.holdfast", "blocked.memcpy",
                                  "blocked.after_step", "blocked.before_update", "shared.two", "shared.four",
                                  "shared.staged", "stolen.writer", "restore.verified", "flat.row",
                                  "flat.kept", "memory.extra", "lost.holdfast", "split.attributes",
                                  "split.describe", "split.launch", "split.copies"}));
  EXPECT_GT(all["machine"]["cores"].get<int>(), 0);
  EXPECT_THAT(all["machine"]["file_system"].get<std::string>(), HasSubstr(" on "));
  EXPECT_THAT(all["left_out"].dump(), HasSubstr("Python"));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("goals met"), HasSubstr("left out: the peers in Python")));

  const std::string chart = read_text(output + ".svg");
  EXPECT_THAT(chart, AllOf(StartsWith("<svg "), EndsWith("</svg>\n"), HasSubstr("Holdfast, with XXH3-128")));
  EXPECT_THAT(chart, Not(HasSubstr("nan")));

  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, testing::UnorderedElementsAre("result.json", "result.svg"));
}

TEST(BenchCheckpoint, TeachesByHelp) {
  const Ended ended = bench({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* word : {"commit", "shared", "stolen", "restore", "flat", "memory", "training", "split",
                           "gpu", "resnet50", "2gb", "--repetitions", "bench/peers/install"}) {
    EXPECT_THAT(ended.out, HasSubstr(word));
  }
}

TEST(BenchCheckpoint, RefusesInOneLineWhatCannotWork) {
  expect_one_line(bench({"--fast"}), "--fast");
  expect_one_line(bench({"--states", "resnet51"}), "there is no state 'resnet51'");
  expect_one_line(bench({"--only", "everything"}), "there is no part 'everything'");
  expect_one_line(bench({"--quick", "--directory", "/nowhere/at/all"}),
                  "there is no directory /nowhere/at/all");
}

TEST(BenchCheckpoint, RefusesADirectoryInMemory) {
  if (!std::filesystem::is_directory("/dev/shm") || !in_memory("/dev/shm")) {
    GTEST_SKIP() << "there is no tmpfs at /dev/shm";
  }
  expect_one_line(bench({"--quick", "--directory", "/dev/shm"}), "nothing is durable");
}

TEST(BenchCheckpoint, RefusesAPlaceForItsResultsBeforeItMeasures) {
  if (in_memory(disk())) GTEST_SKIP() << "the build lies in memory, and nothing is durable there";
  const TemporaryFolder folder(disk());
  const Ended ended =
      bench({"--quick", "--directory", folder.path().string(), "--output", "/nowhere/at/all/result"});
  expect_one_line(ended, "cannot write /nowhere/at/all/result.json");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(BenchCheckpoint, RefusesADiskThatIsFull) {
  if (const std::string why = LoopVolume::why_not(VolumeKind::ext4); !why.empty()) GTEST_SKIP() << why;
  const LoopVolume volume({.kind = VolumeKind::ext4});
  const Ballast ballast(volume.path(), 1 << 20);
  expect_one_line(bench({"--quick", "--directory", volume.path().string()}), "make room");
}

}}  // namespace holdfast::test
