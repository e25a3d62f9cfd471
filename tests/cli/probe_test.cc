// `holdfast probe` on memory and on this machine's disk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {HOLDFAST_BIN_DIR "/holdfast", "probe"});
  return arguments;
}
Ended probe(std::vector<std::string> arguments) { return Subprocess(command(std::move(arguments))).wait(); }

bool holds_a_probe(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().native().starts_with(".holdfast-probe-")) return true;
  }
  return false;
}

TEST(ProbeCommand, SaysWhatTheDiskPromises) {
  const TemporaryFolder folder(fs::current_path());  // the build's disk
  write_text(folder.path() / "step-000000000001-a0001.h5", "mine");
  const Ended ended = probe({folder.path(), "--size", "32MiB", "--state", "2GB"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr(folder.path().native()), HasSubstr(" free of "), HasSubstr("O_DIRECT"),
                    HasSubstr("fallocate"), HasSubstr("/s ("), HasSubstr("commits a small file in"),
                    HasSubstr("a save of 2.00 GB takes about"), HasSubstr("two minutes")));
  EXPECT_EQ(ended.last_line(), "checkpoints can be committed here");
  EXPECT_EQ(read_text(folder.path() / "step-000000000001-a0001.h5"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(ProbeCommand, JsonSaysTheSame) {
  const fs::path memory = "/dev/shm";
  if (!fs::is_directory(memory) || access(memory.c_str(), W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const TemporaryFolder folder(memory);
  const Ended ended = probe({folder.path(), "--size", "32MiB", "--state", "1GiB", "--json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const auto json = nlohmann::json::parse(ended.out);
  EXPECT_EQ(json["path"], folder.path().native());
  EXPECT_EQ(json["fit"], true);
  EXPECT_EQ(json["in_memory"], true);
  EXPECT_EQ(json["directory_fsync"], true);
  EXPECT_GT(json["writing"]["bytes"].get<double>(), 0);
  EXPECT_GT(json["writing"]["seconds"].get<double>(), 0);
  EXPECT_EQ(json["estimate"]["state_bytes"], 1u << 30);
  EXPECT_FALSE(json["remarks"].empty());
}

TEST(ProbeCommand, MistakesOfUse) {
  const TemporaryFolder folder;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{},
                                                    {folder.path(), "--size", "much"},
                                                    {folder.path(), "--state", "0"},
                                                    {folder.path(), "--size", "-1"}}) {
    EXPECT_EQ(probe(arguments).exit_code, 64);
  }
  const Ended missing = probe({folder.path() / "no"});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("is the volume mounted?"));
  EXPECT_EQ(probe({"/proc/version"}).exit_code, 2);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(ProbeCommand, ASignalEndsItAndItsFolderGoes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder(fs::current_path());
    Subprocess run(command({folder.path(), "--size", "4GB"}));
    ASSERT_TRUE(run.wait_until([&] { return holds_a_probe(folder.path()); }));
    run.send(signal);
    EXPECT_EQ(run.wait().signal, signal);
    EXPECT_FALSE(holds_a_probe(folder.path()));
  }
}

TEST(ProbeCommand, WhatAKilledOneLeftIsRemovedByTheNext) {
  const TemporaryFolder folder(fs::current_path());
  {
    Subprocess run(command({folder.path(), "--size", "4GB"}));
    ASSERT_TRUE(run.wait_until([&] { return holds_a_probe(folder.path()); }));
    run.send(SIGKILL);
    run.wait();
  }
  EXPECT_TRUE(holds_a_probe(folder.path()));
  EXPECT_EQ(probe({folder.path(), "--size", "16MiB"}).exit_code, 0);
  EXPECT_FALSE(holds_a_probe(folder.path()));
}

}}  // namespace holdfast::test
