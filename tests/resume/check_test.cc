// `holdfast check`: a whole program is proven, and each thing that can be left out of the state is found.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

using Words = std::vector<std::string>;

Ended check(const Words& command, const Words& options = {"--steps", "40"}) {
  Words words = {program("holdfast"), "check"};
  words.insert(words.end(), options.begin(), options.end());
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return Subprocess(words, {{"OMP_NUM_THREADS", "1"}}).wait();
}
Ended check_without(const std::string& left_out, const Words& options = {"--steps", "40"}) {
  return check({HOLDFAST_CHECKED_PROGRAM, "/nowhere", left_out}, options);
}

TEST(Check, AWholeProgramIsProven) {
  const Ended ended =
      check_without("nothing", {"--steps", "40", "--kills", nightly() ? "8" : "4", "--stdout"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("killed in the middle"), HasSubstr("killed right after a save"),
                    HasSubstr("killed at an epoch's end"),
                    ContainsRegex("resumed from step 14: 26 steps computed again, bit-identical"),
                    HasSubstr("\nPROVEN for steps 1 to 40; latest resume at 36; nothing is said")));
}

TEST(Check, WithoutStepsTheFirstLifeIsLongEnough) {
  const Ended ended = check_without("nothing", {"--kills", "1"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("PROVEN for steps 1 to [0-9]{2,4}; latest resume at [0-9]+; "));
  EXPECT_THAT(ended.out, testing::Not(HasSubstr("was seen"))) << "an epoch's end, and an evaluation";
}

// What begins after the middle, and what lasts for two steps after another value changed.
TEST(Check, WhatBeginsLateIsFound) {
  EXPECT_EQ(check_without("phase", {"--steps", "40", "--kills", "2"}).exit_code, 0) << "only early resumes";
  Ended ended = check_without("phase", {"--steps", "40", "--kills", "3"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("killed late, after step 38; resumed from step 36\nNOT PROVEN: step 37"));
  ended = check_without("stage");
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("killed right after a change of kept.stage, after step 35; resumed from "
                                   "step 33\nNOT PROVEN: step 34"));
}

TEST(Check, WhatDiffersIsNamed) {
  const Ended ended = check_without("rate");
  EXPECT_THAT(ended.out, ContainsRegex("NOT PROVEN: step 15: the loss differs\n  tensors: [0-9]+ of [0-9]+ "
                                       "differ after this step: first"));
  EXPECT_THAT(
      ended.out,
      AllOf(HasSubstr("attributes that differ after this step (straight, resumed):\n    kept.average  "),
            HasSubstr("\n    kept.hidden   ")));
}

TEST(Check, APartThatComesLateIsNeverProven) {
  const Ended ended = check_without("added");
  EXPECT_EQ(ended.exit_code, 70) << ended.out << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("comes after resume()"));
  const Ended group = check_without("group");
  EXPECT_EQ(group.exit_code, 70) << group.out << group.err;
  EXPECT_THAT(group.err, HasSubstr("'first_optimizer' has 2 parameter groups and had 1"));
}

TEST(Check, AFileThatTheProgramLeavesIsCompared) {
  EXPECT_EQ(check_without("best", {"--steps", "40", "--kills", "2"}).exit_code, 0)
      << "no step reads the best value";
  Ended ended = check_without("best", {"--steps", "40", "--output", "best"});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("NOT PROVEN: best differs from byte "));
  EXPECT_EQ(check_without("kept_best", {"--steps", "40", "--kills", "2", "--output", "best"}).exit_code, 0);
  ended = check_without("nothing", {"--steps", "40", "--output", "best"});
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("the first life left no such file"));
}

// Outside of the trial's folder, a file of the user is put back.
TEST(Check, AFileOfTheUserIsPutBack) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "best";
  std::ofstream(file) << "of the real run";
  const Ended ended = check({HOLDFAST_CHECKED_PROGRAM, "/nowhere", "kept_best", file.string()},
                            {"--steps", "40", "--kills", "1", "--output", file.string()});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(read_text(file), "of the real run");
  EXPECT_FALSE(std::filesystem::exists(file.string() + ".before-check"));
}

TEST(Check, TheExampleIsProven) {
  const Ended ended = check({program("own_loop"), "/nowhere"}, {"--steps", "40", "--kills", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

// A module, a number, a generator, and what begins late: by night the others of these kinds, too.
TEST(Check, WhatIsLeftOutIsFound) {
  std::vector<const char*> all = {"model", "data", "engine", "late"};
  if (nightly()) all.insert(all.end(), {"optimizer", "rate", "hidden", "average"});
  for (const char* const left_out : all) {
    const Ended ended = check_without(left_out);
    EXPECT_EQ(ended.exit_code, 1) << left_out << ended.out << ended.err;
    EXPECT_THAT(ended.out,
                AllOf(ContainsRegex("NOT PROVEN: step 1[5-7]: the (loss|state)"), HasSubstr("usual causes:")))
        << left_out;
  }
}

TEST(Check, AFileBesideTheRunIsTheTrialsOwn) {
  const TemporaryFolder folder;
  const auto side_file = folder.path() / "ring";
  std::ofstream(side_file) << "of the real run";
  const std::string run = folder.path() / "run";
  const Ended ended = check({HOLDFAST_CHECKED_PROGRAM, run, "slack"}, {"--steps", "40", "--kills", "2"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_EQ(read_text(side_file), "of the real run");
  EXPECT_FALSE(std::filesystem::exists(run));
}

// What was overwritten after the checkpoint is lost.
TEST(Check, ARingInAFileNeedsSlack) {
  const Ended ended = check_without("ring");
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
}

TEST(Check, StandardOutputIsComparedWhereAsked) {
  const std::string pid = "printed";
  EXPECT_EQ(check_without(pid, {"--steps", "40", "--kills", "1"}).exit_code, 0);
  const Ended ended = check_without(pid, {"--steps", "40", "--stdout"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("NOT PROVEN: standard output differs"));
}

// The warnings of the first save say more than the usual causes.
TEST(Check, WhatTheProgramDoubtsIsSaid) {
  const Ended ended = check_without("optimizer");
  EXPECT_THAT(ended.out, AllOf(HasSubstr("the program's own warnings at its first save:\n"),
                               HasSubstr("2 parameters (second/weight, second/bias) have gradients")));
}

TEST(Check, WhatCannotBeComparedIsRefused) {
  Ended ended = check_without("loss");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("gives after_step() no .loss"));
  ended = check_without("ranks");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("holdfast check proves a program of one process; run it with one rank"));
}

TEST(Check, AProgramThatIgnoresTheStopIsNamed) {
  const Ended ended = check_without("deaf");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("trains on after Decision::stop"));
}

TEST(Check, AProgramThatHangsIsKilled) {
  const auto start = [](const char* how) {
    return std::make_unique<Subprocess>(Words{program("holdfast"), "check", "--steps", "40",
                                              "--stall-timeout", "15s", "--", HOLDFAST_CHECKED_PROGRAM,
                                              "/nowhere", how});
  };
  const auto hanging = start("hangs");
  const auto lingering = start("lingers");
  Ended ended = hanging->wait();
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("life 1 of the program took no step after step 10 for 15s"),
                               HasSubstr("--stall-timeout"), HasSubstr("planted hang")));
  ended = lingering->wait();
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("was told to stop at step 40, and did not end for 15s"));
  EXPECT_EQ(check_without("none", {"--stall-timeout", "0s"}).exit_code, 64);
}

TEST(Check, CancelledItLeavesNothingBehind) {
  const TemporaryFolder folder;
  for (const int signal : {SIGINT, SIGTERM}) {
    Subprocess process({program("holdfast"), "check", "--", HOLDFAST_CHECKED_PROGRAM, "/nowhere", "hangs"},
                       {{"TMPDIR", folder.path().string()}});
    const auto trial = [&] { return std::filesystem::directory_iterator(folder.path()); };
    ASSERT_TRUE(process.wait_until(
        [&] { return trial() != end(trial()) && !read_text(trial()->path() / "steps").empty(); }));
    process.send(signal);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 128 + signal);
    EXPECT_THAT(ended.err, HasSubstr("nothing is proven"));
    EXPECT_EQ(trial(), end(trial())) << "the trial's folder is gone";
  }
}

TEST(Check, AResumedLifeThatFailsProvesThatSomethingIsMissing) {
  const Ended ended = check_without("resumed_crash");
  EXPECT_EQ(ended.exit_code, 1) << ended.err;
  EXPECT_THAT(ended.out, AllOf(ContainsRegex("NOT PROVEN: step [0-9]+: the resumed life ended before it\n"),
                               HasSubstr("the resumed life ended with 70; its last lines:"),
                               HasSubstr("planted crash"), HasSubstr("usual causes:")));
}

TEST(Check, WhereNothingIsComparedNothingIsProven) {
  Ended ended = check({"/bin/true"});
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, HasSubstr("took no step with a Checkpointer"));
  ended = check_without("crash");
  EXPECT_EQ(ended.exit_code, 70);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("ended with 70"), HasSubstr("planted crash")));
  EXPECT_EQ(check({}).exit_code, 64);
}

}}  // namespace holdfast::test
