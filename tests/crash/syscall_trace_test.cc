// Rule 1 of store/commit.h, watched from outside: inside the run directory only io/file_system.h touches the
// disk. It works beneath an open descriptor, so any call that changes something there by an absolute path
// came from elsewhere; and programs that only look change nothing at all.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

constexpr char kCalls[] =
    "trace=open,openat,openat2,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "unlink,unlinkat,rmdir,truncate,chmod,fchmodat,chown,lchown,fchownat,utimensat,mknod,mknodat";

struct Trace {
  Ended ended;
  std::vector<std::string> lines;
};

Trace trace(std::vector<std::string> command) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "trace";
  std::vector<std::string> traced = {"/usr/bin/env", "strace", "-f", "-y",          "-s", "4096",
                                     "-e",           kCalls,   "-e", "signal=none", "-o", file};
  traced.insert(traced.end(), command.begin(), command.end());
  Trace result;
  result.ended = Subprocess(traced, {{"HOLDFAST_LOG", "warning"}}).wait();
  result.lines = lines_of(read_text(file));
  return result;
}

bool opens(const std::string& line) { return std::regex_search(line, std::regex(R"(\bopen(at2?)?\()")); }

bool changes_something(const std::string& line) {
  if (!opens(line)) return line.find('(') != std::string::npos;
  return std::regex_search(line, std::regex("O_(CREAT|WRONLY|RDWR|TRUNC|APPEND)"));
}

// The directory appears as an absolute path in the call's own words, not as what a descriptor stands for.
bool names_by_path(const std::string& line, const std::string& run) {
  return line.find('"' + run) != std::string::npos;
}

std::vector<std::string> changes_by_path(const Trace& trace, const std::string& run) {
  std::vector<std::string> found;
  const std::regex makes_itself("mkdir(at)?\\(.*\"" + run + "\"");
  for (const std::string& line : trace.lines) {
    if (!names_by_path(line, run) || !changes_something(line)) continue;
    if (!std::regex_search(line, makes_itself)) found.push_back(line);
  }
  return found;
}

std::vector<std::string> changes_beneath(const Trace& trace, const std::string& run) {
  std::vector<std::string> found;
  for (const std::string& line : trace.lines) {
    const bool beneath = line.find('<' + run) != std::string::npos || names_by_path(line, run);
    if (beneath && changes_something(line)) found.push_back(line);
  }
  return found;
}

class SyscallTrace : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Subprocess({"/bin/sh", "-c", "strace -o /dev/null true"}).wait().exit_code != 0) {
      GTEST_SKIP() << "strace is missing, or may not trace here";
    }
  }

  std::vector<std::string> drive(int steps) const { return {HOLDFAST_DRIVER, run, std::to_string(steps)}; }

  TemporaryFolder folder;
  const std::string run = std::filesystem::canonical(folder.path()) / "run";
};

TEST_F(SyscallTrace, OnlyTheFileSystemSeamChangesTheRunDirectory) {
  for (const int steps : {6, 12}) {  // a first life, and one that recovers, commits and deletes
    const Trace traced = trace(drive(steps));
    ASSERT_EQ(traced.ended.exit_code, 0) << traced.ended.err;
    EXPECT_FALSE(changes_beneath(traced, run).empty()) << "nothing was traced";
    for (const std::string& line : changes_by_path(traced, run)) ADD_FAILURE() << line;
  }
}

TEST_F(SyscallTrace, ACallFromElsewhereIsSeen) {
  ASSERT_EQ(Subprocess(drive(6)).wait().exit_code, 0);
  const Trace traced = trace({"/bin/sh", "-c", "echo x > \"$0/extra\"; rm \"$0/extra\"", run});
  EXPECT_EQ(changes_by_path(traced, run).size(), 2U);
}

TEST_F(SyscallTrace, LookingChangesNothing) {
  ASSERT_EQ(Subprocess(drive(6)).wait().exit_code, 0);
  for (const char* command : {"ls", "verify", "status"}) {
    const Trace traced = trace({std::string(HOLDFAST_BIN_DIR) + "/holdfast", command, run});
    EXPECT_EQ(traced.ended.exit_code, 0) << traced.ended.err;
    for (const std::string& line : changes_beneath(traced, run)) ADD_FAILURE() << command << ": " << line;
  }
}

}}  // namespace holdfast::test
