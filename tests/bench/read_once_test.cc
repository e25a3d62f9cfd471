// bench_read_once as a program, on a tiny scale. No time is judged here, but what the device counts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/loop_volume.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

TEST(BenchReadOnce, CountsWhatTheDeviceReads) {
  if (const std::string why = LoopVolume::why_not(VolumeKind::ext4); !why.empty()) GTEST_SKIP() << why;
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result.json";
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/bench_read_once", "--megabytes", "40", "--rate", "400",
                                  "--repetitions", "1", "--output", output})
                          .wait(std::chrono::minutes(4));
  if (ended.err.find("the kernel does not throttle here") != std::string::npos) GTEST_SKIP() << ended.err;
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  std::map<std::string, double> files;
  std::map<std::string, double> images;
  const auto all = nlohmann::json::parse(read_text(output));
  for (const auto& row : all["rows"]) {
    files[row["name"]] = row["files"][0];
    images[row["name"]] = row["images"][0];
  }
  // Heads, and blocks of the file system, are read besides.
  EXPECT_LE(files.at("4 ranks"), 1.25) << ended.out;
  EXPECT_GE(files.at("4 ranks apart"), 3.9) << "or the bench counts nothing: " << ended.out;
  EXPECT_LE(images.at("4 ranks"), images.at("4 ranks apart")) << ended.out;
}

TEST(BenchReadOnce, SaysWhatCannotBe) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/bench_read_once", "--ranks", "1"}).wait();
  EXPECT_EQ(ended.exit_code, 64);
}

}}  // namespace holdfast::test
