// `holdfast rehearse` with the real Checkpointer in a process of its own: one that hears the notice, one that
// is deaf, and commands that are no trainers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "crash/driver_run.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

const std::map<std::string, std::string> kInfo = {{"HOLDFAST_LOG", "info"}};

class Rehearse : public testing::Test {
 protected:
  std::filesystem::path run() const { return folder_.path() / "run"; }
  // Trains until it is stopped; a step takes about 2 ms.
  Words trainer(const std::string& steps = "1000000") const {
    return {HOLDFAST_DRIVER, run().native(), steps, "every=100", "pace-us=2000"};
  }
  static Words words(Words options, const Words& command) {
    options.insert(options.begin(), {HOLDFAST_BIN_DIR "/holdfast", "rehearse"});
    options.emplace_back("--");
    options.insert(options.end(), command.begin(), command.end());
    return options;
  }
  static Ended rehearse(const Words& options, const Words& command) {
    return Subprocess(words(options, command), kInfo).wait();
  }

  TemporaryFolder folder_;
};

TEST_F(Rehearse, HelpHasAnExample) {
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "rehearse", "--help"}).wait();
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("Example:\n  holdfast rehearse "), HasSubstr("Exit code: 0")));
}

TEST_F(Rehearse, MistakesOfUseStartNothing) {
  for (const Words& options : {Words{"--in", "5"}, Words{"--notice", "soon"}, Words{"--repeat", "0"},
                               Words{"--provider", "cloud9"}, Words{"--kil"}}) {
    EXPECT_EQ(rehearse(options, trainer()).exit_code, 64) << options.front();
  }
  EXPECT_EQ(rehearse({}, {}).exit_code, 64);
  EXPECT_FALSE(std::filesystem::exists(run()));
}

// Side by side, because a rehearsal takes as long as its notice. The first one's run directory is found by
// itself, and commits and waits at once: a SIGKILL at the deadline would punish one that trains on, if the
// machine stands still for some seconds just before. The other one trains on, and SIGTERM lets it commit.
TEST_F(Rehearse, NothingIsLost) {
  const TemporaryFolder other;
  const auto elsewhere = other.path() / "run";
  Words waiting = trainer();
  waiting.emplace_back("waits");
  Subprocess killed(words({"--in", "100ms", "--notice", "20s", "--kill"}, waiting), kInfo);
  Subprocess polite(words({"--in", "100ms", "--notice", "20s", "--directory", elsewhere.native()},
                          {HOLDFAST_DRIVER, elsewhere.native(), "1000000", "every=100", "pace-us=2000"}),
                    kInfo);
  Ended ended = killed.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(
      ended.out,
      AllOf(
          ContainsRegex("notice    20s ahead; seen after .* \\(ec2\\), .* before the end"),
          ContainsRegex("commits   step [0-9,]+ after "),
          HasSubstr("ended     killed by SIGKILL, at the deadline"),
          ContainsRegex("unused    .* of the grace"),
          ContainsRegex("resumed   at step [0-9,]+, 0 steps lost"),
          ContainsRegex("last life: attempt 2, from step .*, exit 75"),
          HasSubstr(
              "verified, every byte\nnothing was lost\nnot proven: that the resumed run computes the same")));
  ended = polite.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("ended     exit 75, at the deadline"), HasSubstr("nothing was lost")));
  if (!HasFailure())
    std::printf("rehearse: 2 notices given, 2 seen, 1 machine killed, 1 shut down, 0 steps lost\n");
}

TEST_F(Rehearse, ADeafTrainerIsFoundOut) {
  Words deaf = trainer();
  deaf.insert(deaf.begin(), {"/usr/bin/env", "HOLDFAST_SOURCES=signal"});
  const Ended ended = rehearse({"--in", "0s", "--notice", "500ms", "--kill"}, deaf);
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("the notice was not seen: no process asked the metadata server"),
                               HasSubstr("NOT PROVEN: life 1: "), Not(HasSubstr("nothing was lost"))));
}

TEST_F(Rehearse, WhatDoesNotTrainProvesNothing) {
  std::signal(SIGPIPE, SIG_DFL);
  // Nor is it told what our web server wants: bit 12 is SIGPIPE's.
  const std::string text =
      "m=$(sed -n 's/^SigIgn:.*\\(.....\\)$/\\1/p' /proc/self/status); exit $((3 + (0x$m >> 12 & 1)))";
  Ended ended = rehearse({"--in", "0s"}, {"/bin/sh", "-c", text});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("it did not begin to train (exit 3)"));
  ended = rehearse({"--in", "1min", "--directory", run().native()}, trainer("20"));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("it ended before the notice"));
}

// The run has a past, with a notice in it, and nobody names the directory.
TEST_F(Rehearse, APastIsNotTakenForTheRehearsal) {
  ASSERT_EQ(drive(run(), 30, {"every=10"}).exit_code, 0);
  write_text(
      run() / "ledger-a0001.jsonl",
      read_text(run() / "ledger-a0001.jsonl") +
          "{\"event\":\"notice\",\"t\":1000,\"source\":\"ec2\",\"kind\":\"deadline\",\"left_ms\":500}\n");
  const Ended ended = rehearse({"--in", "0s", "--notice", "1s"}, trainer());
  EXPECT_THAT(ended.err, AllOf(HasSubstr("attempt 2 trains from step"),
                               HasSubstr("attempt 3 trains from step"), Not(HasSubstr("attempt 1 trains"))));
  EXPECT_THAT(ended.out, AllOf(HasSubstr("life 1: attempt 2, from step 30\n"),
                               ContainsRegex("resumed   at step [0-9,]+, 0 steps lost"),
                               HasSubstr("last life: attempt 3, ")));
}

TEST_F(Rehearse, WhatDoesNotLeaveIsKilled) {
  const std::string deaf =
      "trap '' TERM; echo ready >&2; n=0; while [ $n -lt 6000 ]; do sleep 0.01; n=$((n+1)); done";
  Subprocess process(words({}, {"/bin/sh", "-c", deaf}), {{"HOLDFAST_TERM_GRACE", "1ms"}});
  ASSERT_TRUE(process.wait_until([&] { return process.err().find("ready") != std::string::npos; }));
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 128 + SIGTERM);
}

TEST_F(Rehearse, CancelledItLeavesARunThatCanBeResumed) {
  Subprocess process(words({"--in", "1h", "--directory", run().native()}, trainer()), kInfo);
  ASSERT_TRUE(
      process.wait_until([&] { return process.err().find("trains from step") != std::string::npos; }));
  process.send(SIGTERM);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.err;
  const std::int64_t stood = last_step(ended.out, "interrupted");
  ASSERT_GE(stood, 0) << ended.out;
  EXPECT_GE(last_step(drive(run(), stood + 5).out, "started"), stood);
}

}}  // namespace holdfast::test
