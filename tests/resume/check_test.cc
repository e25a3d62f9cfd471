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
  const Ended ended = check_without("nothing", {"--steps", "40", "--stdout"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("killed in the middle"), HasSubstr("killed right after a save"),
                               HasSubstr("killed at an epoch's end"),
                               ContainsRegex("resumed from step 14: 26 steps computed again, bit-identical"),
                               HasSubstr("\nPROVEN\n")));
}

TEST(Check, TheExampleIsProven) {
  const Ended ended = check({program("own_loop"), "/nowhere"});
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
}

TEST(Check, WhatIsLeftOutIsFound) {
  for (const char* const left_out :
       {"model", "optimizer", "data", "rate", "hidden", "engine", "average", "late"}) {
    const Ended ended = check_without(left_out);
    EXPECT_EQ(ended.exit_code, 1) << left_out << ended.out << ended.err;
    EXPECT_THAT(ended.out,
                AllOf(ContainsRegex("NOT PROVEN: step 1[5-7]: the (loss|state)"), HasSubstr("usual causes:")))
        << left_out;
  }
}

TEST(Check, StandardOutputIsComparedWhereAsked) {
  const std::string pid = "printed";
  EXPECT_EQ(check_without(pid).exit_code, 0);
  const Ended ended = check_without(pid, {"--steps", "40", "--stdout"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("NOT PROVEN: standard output differs"));
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
