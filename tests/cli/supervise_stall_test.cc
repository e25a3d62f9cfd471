// What `holdfast supervise` keeps of a training that hangs, before it ends it: attempts/<n>.stall.txt.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/supervised.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

class StallEvidence : public Supervise {
 protected:
  // The first life hangs, and the second is complete.
  std::string hangs_once(const std::string& hang) const {
    return "n=$(wc -l <lives); [ $n -lt 2 ] || { " + attempt("complete", "9") + "exit 0; }; " +
           standing_still("5") + hang;
  }
  static std::string program(const std::string& how) { return "exec " HOLDFAST_STALLED_PROGRAM " " + how; }
  Ended supervise(const std::string& text, std::map<std::string, std::string> environment = {}) {
    // The double does not end at SIGTERM.
    environment.emplace("HOLDFAST_TERM_GRACE", "100ms");
    return Subprocess(command(in_directory({"--stall-timeout", "20s"}), script(text)), environment).wait();
  }
  // In front of the machine's own tools: what a tool of this name does.
  std::map<std::string, std::string> with_tool(const std::string& text) {
    const fs::path folder = folder_.path() / "tools";
    fs::create_directories(folder);
    write_text(folder / "eu-stack", "#!/bin/sh\ncd '" + folder_.path().string() + "'\n" + text + "\n");
    chmod((folder / "eu-stack").c_str(), 0755);
    return {{"PATH", folder.string() + ":" + std::getenv("PATH")}};
  }
  fs::path file(int attempt = 1) const {
    return directory() / "attempts" / (std::to_string(attempt) + ".stall.txt");
  }
  std::string evidence(int attempt = 1) const { return read_text(file(attempt)); }
  static bool has_tools() { return system("command -v eu-stack gdb >/dev/null") == 0; }
};

TEST_F(StallEvidence, NamesTheFunctionThatWaitsForALock) {
  const Ended ended = supervise(hangs_once(program("deadlock")));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lives(), 2U);
  EXPECT_THAT(ended.err, HasSubstr("stall is in " + file().string()));
  const std::string text = evidence();
  EXPECT_THAT(text, AllOf(HasSubstr("step 1 has stood still for 40"), HasSubstr("attempt 1"),
                          HasSubstr("\"event\":\"progress\",\"up_ms\":40000"), HasSubstr("deadlock\n")));
  EXPECT_THAT(text, ContainsRegex("thread [0-9]+ stalled: state S.* waits in futex.*, in futex\\(0x"));
  if (has_tools()) {
    EXPECT_THAT(text, HasSubstr("lock_in_other_order"));
  }
  EXPECT_FALSE(fs::exists(file(2))) << "a life that ends by itself leaves none";
}

TEST_F(StallEvidence, NamesTheFunctionThatSpins) {
  EXPECT_EQ(supervise(hangs_once(program("kernel"))).exit_code, 0);
  EXPECT_EQ(lives(), 2U);
  EXPECT_THAT(evidence(), ContainsRegex("thread [0-9]+ stalled: runs, [0-9.]+ s of CPU"));
  if (has_tools()) {
    EXPECT_THAT(evidence(), HasSubstr("endless_kernel"));
  }
}

TEST_F(StallEvidence, NeedsNoTool) {
  // A PATH with what the script needs, and no more.
  const fs::path tools = folder_.path() / "tools";
  fs::create_directories(tools);
  for (const std::string name : {"mkdir", "mv", "wc", "sleep"}) {
    fs::create_symlink(fs::exists("/bin/" + name) ? "/bin/" + name : "/usr/bin/" + name, tools / name);
  }
  EXPECT_EQ(supervise(hangs_once(program("deadlock")), {{"PATH", tools.string()}}).exit_code, 0);
  EXPECT_THAT(evidence(), AllOf(HasSubstr("neither eu-stack (elfutils) nor gdb is installed"),
                                ContainsRegex("thread [0-9]+ stalled: state S.*in futex")));
}

// A tool that hangs must not keep the training from its restart.
TEST_F(StallEvidence, ATimeLimitsTheTool) {
  const auto tools = with_tool("trap '' TERM; echo $$ >tool; echo '#0 half_a_stack'; exec sleep 1000");
  EXPECT_EQ(supervise(hangs_once(program("deadlock")), tools).exit_code, 0);
  EXPECT_EQ(lives(), 2U);
  EXPECT_THAT(evidence(), AllOf(HasSubstr("half_a_stack"), HasSubstr("did not end in time and was killed")));
  ASSERT_TRUE(there("tool"));
  EXPECT_NE(kill(std::stoi(noted("tool").front()), 0), 0) << "it has been killed";
}

TEST_F(StallEvidence, IsAtMostAMebibyte) {
  const auto tools = with_tool("head -c 8000000 /dev/zero | tr '\\0' x");
  EXPECT_EQ(supervise(hangs_once(program("deadlock")), tools).exit_code, 0);
  EXPECT_THAT(fs::file_size(file()), AllOf(testing::Gt(1U << 18), testing::Le(1U << 20)));
  EXPECT_THAT(evidence(), HasSubstr("thread ")) << "what matters comes before it";
  // What another wrapper has kept there counts.
  fs::remove_all(directory());
  fs::remove(folder_.path() / "lives");
  const std::string full(1 << 20, 'x');
  fs::create_directories(directory() / "attempts");
  write_text(file(), full);
  EXPECT_EQ(supervise(hangs_once(program("deadlock")), tools).exit_code, 0);
  EXPECT_EQ(fs::file_size(file()), full.size());
}

TEST_F(StallEvidence, GoesElsewhereWhereTheRunDirectoryTakesNoFile) {
  const auto environment = [&] {
    auto all = with_tool("rmdir run/attempts/1.stall.txt 2>/dev/null; mkdir run/attempts/1.stall.txt");
    all["TMPDIR"] = folder_.path().string();
    return all;
  }();
  const Ended ended = supervise(hangs_once(program("deadlock")), environment);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string begin = "stall is in " + folder_.path().string() + "/holdfast-stall-";
  EXPECT_THAT(ended.err, AllOf(HasSubstr(begin), HasSubstr("1.stall.txt: Is a directory")));
  const auto at = ended.err.find(begin) + 12;
  const std::string other = ended.err.substr(at, ended.err.find(' ', at) - at);
  EXPECT_THAT(read_text(other), HasSubstr("stalled: state S"));
}

// As c10d listens where TORCH_NCCL_DEBUG_INFO_PIPE_FILE is set.
TEST_F(StallEvidence, AsksForTheFlightRecorder) {
  const std::string folder = folder_.path().string();
  const Ended ended =
      supervise(hangs_once("mkfifo trace7.pipe; cat trace7.pipe >asked & " + program("deadlock")),
                {{"RANK", "7"},
                 {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", folder + "/trace"},
                 {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE", folder + "/record"}});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(evidence(), HasSubstr("Flight Recorder, and writes it to " + folder + "/record7"));
  EXPECT_THAT(read_text(folder_.path() / "asked"), HasSubstr("1"));
}

TEST_F(StallEvidence, IsNamedByStatusAndReport) {
  ASSERT_EQ(supervise(hangs_once(program("deadlock"))).exit_code, 0);
  const auto told = [&](const Words& words) {
    Words all = {HOLDFAST_BIN_DIR "/holdfast"};
    all.insert(all.end(), words.begin(), words.end());
    all.push_back(directory().string());
    return Subprocess(all).wait().out;
  };
  const std::string name = "attempts/1.stall.txt";
  EXPECT_THAT(told({"status"}), HasSubstr(name));
  EXPECT_EQ(nlohmann::json::parse(told({"status", "--json"}))["stall"], name);
  EXPECT_THAT(told({"report"}), HasSubstr(name));
  EXPECT_EQ(nlohmann::json::parse(told({"report", "--json"}))["stalls"], nlohmann::json({name}));
}

}}  // namespace holdfast::test
