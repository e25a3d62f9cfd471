// Fifteen questions about events that meet, and how each is decided. A row of the table is a test.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "scripted_world.h"

namespace holdfast::simulation { namespace {

using namespace std::chrono_literals;
using run::EvaluationBegun;
using run::EvaluationEnded;
using run::NoticeHeard;
using run::Remark;

// A commit takes 20 s, and one has been measured.
struct Measured : ScriptedWorld {
  explicit Measured(int ranks, OnNotice policy = OnNotice::train_on, Duration commit = 20s)
      : ScriptedWorld({.every = {SaveEvery::steps(100)}, .on_notice = policy}, ranks), policy_(policy) {
    write = commit;
    measure_a_save();
  }
  NoticeHeard end(int source, Duration left, bool guessed = false) const {
    return {.source = source, .at = now + left, .guessed = guessed, .policy = policy_};
  }
  NoticeHeard stop(Duration left) const { return {.source = 9, .kind = NoticeKind::stop, .at = now + left}; }
  OnNotice policy_;
};

struct Question {
  int number;
  const char* decided;
  void (*check)();
};
std::ostream& operator<<(std::ostream& out, const Question& question) { return out << question.decided; }

void train_to_before_a_save(Measured& world) {
  while (world.at % 100 != 99) world.step();
}

const Question kQuestions[] = {
    {1, "a save that was agreed a step ago does not begin if a named deadline forbids it now",
     [] {
       Measured world(2);
       train_to_before_a_save(world);
       const std::size_t before = world.begun();
       world.give(0, world.end(1, 15s));
       world.step();
       EXPECT_EQ(world.begun(), before);
       EXPECT_TRUE(world[0].says(Remark::declined));
     }},
    {2, "a rank's guess stays a guess beside another rank's later named end",
     [] {
       Measured world(2);
       const std::size_t before = world.begun();
       world.give(0, world.end(1, 10min));
       world.give(1, world.end(2, 15s, true));
       for (int i = 0; i < 3; ++i) world.step();
       EXPECT_GT(world.begun(), before) << "a guess never forbids to try";
       EXPECT_FALSE(world[0].says(Remark::too_late));
     }},
    {3, "each named end ahead forbids, also behind one that has passed or comes later",
     [] {
       Measured world(1);
       const std::size_t before = world.begun();
       world.give(0, world.end(1, 2s, true));
       world.give(0, world.end(2, 15s));
       world.step(3s);
       EXPECT_EQ(world.begun(), before);
       EXPECT_TRUE(world[0].says(Remark::too_late));

       Measured evaluating(1);
       evaluating.step();
       evaluating.call(EvaluationBegun{evaluating.at});
       evaluating.give(0, evaluating.end(2, 15s));
       evaluating.give(0, evaluating.end(1, 2s, true));
       evaluating.pass(3s);
       EXPECT_NE(evaluating[0].written.back(), evaluating.at);
     }},
    {4, "the vote at the end counts no further step",
     [] {
       Measured world(2, OnNotice::train_on, 10s);
       while (world.at % 100 != 55) world.step(2s);
       // After the next step's vote 12.05 s are left, too few for a step and a commit; at the end 10.05 s are.
       world.give(1, world.stop(14'050ms));
       world.step(2s);
       world.step(2s);
       EXPECT_TRUE(world[0].returned->stop);
       world.finish();
       EXPECT_EQ(world.durable, world.at);
       EXPECT_EQ(world[0].code, 75);
     }},
    {5, "with OnNotice::exit a withdrawn end of another rank forbids the last save no more",
     [] {
       Measured world(2, OnNotice::exit);
       while (world.at % 100 != 55) world.step();
       world.give(1, world.end(1, 18s));
       while (!world[0].returned->stop && world.at < 300) world.step();
       EXPECT_LT(world.durable, world.at);
       world.give(1, NoticeHeard{.source = 1, .kind = NoticeKind::withdrawn});
       world.finish();
       EXPECT_EQ(world.durable, world.at);
       EXPECT_EQ(world[0].code, 75) << "the program has left its loop";
     }},
    {6, "another rank's hibernation is saved for, and is no end",
     [] {
       Measured world(2);
       while (world.at % 100 != 53) world.step();
       world.give(1, NoticeHeard{.source = 1, .at = world.now + 90s, .hibernates = true});
       const std::size_t before = world.begun();
       for (int i = 0; i < 4; ++i) world.step();
       EXPECT_GT(world.begun(), before);
       EXPECT_FALSE(world[0].says(Remark::pausing));
       world.give(1, run::MachineWoke{});
       for (int i = 0; i < 100; ++i) world.step();
       EXPECT_FALSE(world[0].says(Remark::pausing));
     }},
    {7, "in the minute after a deadline the machine lives, so boundaries, evaluations and stops all try",
     [] {
       Measured world(1);
       const std::size_t before = world.begun();
       world.give(0, world.end(1, 2s));
       world.step(3s);
       EXPECT_GT(world.begun(), before);
       EXPECT_FALSE(world[0].says(Remark::too_late));
     }},
    {8, "in a pause a failed last save is repeated after two seconds, not at once",
     [] {
       Measured world(1, OnNotice::wait, 100ms);
       world.failing_writes = 1;
       world.give(0, world.end(1, 10min));
       const std::size_t before = world.begun();
       world.step(1s, 30s);
       ASSERT_EQ(world.begun(), before + 2);
       EXPECT_GE(world[0].begun[before + 1] - world[0].begun[before], 2s);
       EXPECT_EQ(world.durable, world.at);
     }},
    {9, "save() that finds no image in time takes no second one, and the next step tries again",
     [] {
       Measured world(1);
       train_to_before_a_save(world);
       world.hangs = true;
       world.step();
       world.step();
       const std::size_t before = world.begun();
       world.give(0, world.stop(5s));
       EXPECT_TRUE(world.call(run::SaveCalled{world.at}));
       EXPECT_EQ(world.begun(), before);
       EXPECT_TRUE(world[0].says(Remark::no_image));
     }},
    {10, "Decision::saved says that the ranks agreed on a save, so it is the same on all",
     [] {
       Measured world(2);
       train_to_before_a_save(world);
       world.give(0, world.end(1, 15s));
       world.step();
       EXPECT_TRUE(world[0].returned->saved);
       EXPECT_TRUE(world[1].returned->saved);
     }},
    {11, "finish() after an evaluation that threw, without an image, ends with 70 alone and with ranks",
     [] {
       for (const int ranks : {1, 2}) {
         Measured world(ranks);
         world.step();
         world.failing_copies = ranks;
         world.call(EvaluationBegun{world.at});
         world.call(EvaluationEnded{true});
         world.finish();
         EXPECT_EQ(world[0].code, 70) << ranks << " ranks";
       }
     }},
    {12, "a save in flight that fails inside an evaluation is tried again from its image, also with ranks",
     [] {
       for (const int ranks : {1, 2}) {
         Measured world(ranks, OnNotice::train_on, 5s);
         train_to_before_a_save(world);
         world.failing_writes = 1;
         world.step();
         world.call(EvaluationBegun{world.at});
         world.give(0, world.end(1, 10min, true));
         world.pass(20s);
         EXPECT_EQ(world.durable, world.at) << ranks << " ranks";
       }
     }},
    {13, "what an evaluation's image has served is not served again, and the interval counts from it",
     [] {
       for (const NoticeKind asked : {NoticeKind::checkpoint_now, NoticeKind::at_risk}) {
         Measured world(1);
         world.step();
         world.call(EvaluationBegun{world.at});
         world.give(0, NoticeHeard{.source = 2, .kind = asked});
         world.pass(30s);
         const run::Step saved = world.at;
         EXPECT_EQ(world.durable, saved);
         world.call(EvaluationEnded{});
         const std::size_t before = world.begun();
         world.step();
         EXPECT_EQ(world.begun(), before);
         if (asked == NoticeKind::checkpoint_now) continue;
         while (world.durable == saved && world.at < saved + 200) world.step();
         EXPECT_EQ(world.durable, saved + 50) << "every 100 steps, halved";
       }
     }},
    {14, "a request without room is told, and served once there is room",
     [] {
       Measured world(1);
       while (world.at % 100 != 51) world.step();
       world.pass(30s);
       world.give(0, world.end(1, 60s));
       world.step();  // the insurance
       world.pass(21s);
       const std::size_t before = world.begun();
       world.give(0, NoticeHeard{.source = 2, .kind = NoticeKind::checkpoint_now});
       world.step();
       EXPECT_EQ(world.begun(), before);
       EXPECT_TRUE(world[0].says(Remark::no_room));
       world.give(0, NoticeHeard{.source = 1, .kind = NoticeKind::withdrawn});
       world.step();
       EXPECT_EQ(world.begun(), before + 1);
     }},
    {15, "the end of another rank's machine ends no wait of this rank, for its withdrawal may never be heard",
     [] {
       Measured world(2, OnNotice::train_on, 1s);
       while (world.at % 100 != 55) world.step();
       world.write = 60s;
       world.give(1, world.stop(8s));
       world.step();
       world.step();
       world.finish();
       EXPECT_EQ(world[0].code, 75);
       EXPECT_EQ(world.durable, world.at);
     }},
};

TEST(Waits, EndAfterAnEndThatPassedBeforeTheyBeganAlsoWithoutAStop) {
  Measured world(1, OnNotice::exit, 1s);
  world.hangs = true;
  world.give(0, world.end(1, 5s));
  world.step(1s, 1s);
  world.pass(10s);  // the machine lives, and the program leaves its loop late
  EXPECT_TRUE(world.call(run::FinishCalled{world.at}, 20min));
  EXPECT_EQ(world[0].code, 75);
}

TEST(Evaluations, OfRankZeroHearARankThatHasLeftItsOwn) {
  Measured world(2, OnNotice::train_on, 1s);
  world.step();
  world.call(EvaluationBegun{world.at});
  world.give(1, EvaluationEnded{});
  EXPECT_LT(world.durable, world.at);
  world.give(1, world.end(2, 10min));
  world.pass(5s);
  EXPECT_EQ(world.durable, world.at);
}

TEST(Evaluations, TryASaveAgainThatAnswersARequestAndHadBegunBefore) {
  Measured world(1, OnNotice::train_on, 1s);
  train_to_before_a_save(world);
  world.announced = true;
  world.step();  // its copy goes on beside the next step
  world.call(run::EvaluationBegun{world.at});
  ASSERT_LT(world.durable, world.at);
  world.failing_writes = 1;
  world.give(0, run::NoticeHeard{.source = 1, .kind = NoticeKind::checkpoint_now});
  world.pass(10s);
  EXPECT_EQ(world.durable, world.at);
}

TEST(Answers, BringNoWithdrawnEndBack) {
  Measured world(1, OnNotice::train_on, 1s);
  world.give(0, world.end(1, 10min));
  const run::RunEnds::End end = *world.rank(0).core->ends().standing();
  const run::NoticeAnswered exits{.source = end.source, .seen = end.seen, .policy = OnNotice::exit};
  world.give(0, NoticeHeard{.source = 1, .kind = NoticeKind::withdrawn});
  world.give(0, exits);
  world.step();
  EXPECT_FALSE(world[0].returned->stop);
  world.pass(1s);
  world.give(0, world.end(1, 10min));
  world.give(0, exits);  // about the earlier one
  world.step();
  EXPECT_FALSE(world[0].returned->stop);
}

TEST(Stops, ThatComeAgainAfterTheirEndHasPassedHaveALaterOne) {
  const SteadyTime now{1h};
  run::RunEnds ends;
  ends.hear({.source = 1, .kind = NoticeKind::stop, .at = now + 5s}, now);
  ends.hear({.source = 1, .kind = NoticeKind::stop, .at = now + 9s}, now + 1s);
  EXPECT_EQ(ends.earliest({.named = true}), now + 5s);
  ends.hear({.source = 1, .kind = NoticeKind::stop, .at = now + 20s}, now + 6s);
  EXPECT_EQ(ends.earliest({.named = true}), now + 20s);
}

TEST(HandOvers, ToAStandbyKeepTheirReason) {
  for (const int ranks : {1, 2}) {
    for (int ending = 0; ending < ranks; ++ending) {
      Measured world(ranks);
      world.give(0, run::StandbyReady{true});
      world.step();
      EXPECT_FALSE(world[0].returned->stop) << "nothing is announced";
      world.give(ending, world.end(1, 10min));
      for (int i = 0; i < 30 && !world[0].returned->stop; ++i) world.step();
      EXPECT_TRUE(world[0].returned->stop) << ranks << " ranks, end on rank " << ending;
      EXPECT_TRUE(world.rank(0).core->hands_over()) << ranks << " ranks, end on rank " << ending;
      world.finish();
      EXPECT_EQ(world[0].code, 75);
      EXPECT_EQ(world.durable, world.at);
      EXPECT_TRUE(world.rank(0).core->hands_over()) << ranks << " ranks, end on rank " << ending;
    }
  }
}

TEST(Copies, ThatCannotBeClosedFailTheirSave) {
  Measured world(1, OnNotice::train_on, 1s);
  world.failing_closes = 1;
  train_to_before_a_save(world);
  world.announced = true;
  world.step();
  const std::size_t before = world.begun();
  world.call(run::BeforeUpdate{world.at});
  EXPECT_EQ(world[0].settled.back().outcome, run::Outcome::failed);
  world.step();
  EXPECT_EQ(world.begun(), before) << "made again at every step";
}

class Questions : public testing::TestWithParam<Question> {};

TEST_P(Questions, AreDecided) { GetParam().check(); }

INSTANTIATE_TEST_SUITE_P(All, Questions, testing::ValuesIn(kQuestions),
                         [](const auto& info) { return "Number" + std::to_string(info.param.number); });

}}  // namespace holdfast::simulation
