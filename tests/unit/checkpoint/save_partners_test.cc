// What a process asks of the other ranks, and in which order: at a save, in an evaluation, at the end.
#include "holdfast/checkpoint/internal/save_partners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine_rig.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SavePartnersTest : public EngineTest {
 protected:
  // Only these, as often as they were called; others may be asked at any time.
  std::vector<std::string> calls_of(const std::vector<std::string>& names) {
    std::vector<std::string> calls = partners.calls();
    std::erase_if(calls, [&](const std::string& call) {
      return std::find(names.begin(), names.end(), call) == names.end();
    });
    return calls;
  }
};

TEST_F(SavePartnersTest, TakePartInASaveOnceItsImageIsStaged) {
  start();
  step();
  engine->schedule.want();
  Decision decision;
  engine->boundary_saves.save(decision, {});
  EXPECT_EQ(decision.save.wait(), SaveStatus::durable);
  EXPECT_THAT(partners.calls(), ElementsAre("add_values", "plan", "join", "joined"));
}

TEST_F(SavePartnersTest, TakePartInALateSaveOnlyWhenItIsClosed) {
  start();
  step(true);
  engine->schedule.want();
  Decision decision;
  engine->boundary_saves.save(decision, {});
  EXPECT_THAT(calls_of({"join", "joined"}), IsEmpty());
  announce();
  EXPECT_THAT(partners.calls(), ElementsAre("join", "joined"));
}

TEST_F(SavePartnersTest, AreNotJoinedByASaveThatCouldNotBeStaged) {
  start();
  step();
  source.on_copy = [] { throw Error("planted"); };
  EXPECT_EQ(save_now().status(), SaveStatus::failed);
  EXPECT_THAT(calls_of({"join", "joined"}), IsEmpty());
}

TEST_F(SavePartnersTest, CompleteAnImageBeforeAnEvaluationCommitsIt) {
  start();
  step();
  engine->evaluation.enter();
  engine->evaluation.keep_boundary();
  EXPECT_THAT(calls_of({"torn_rank", "lacking", "complete"}), ElementsAre("torn_rank", "lacking"));
  EXPECT_TRUE(engine->evaluation.commit());
  EXPECT_THAT(partners.calls(), ElementsAre("complete", "usual"));
  engine->evaluation.leave(false, false);
  EXPECT_THAT(partners.calls(), ElementsAre("committed_from_shelf"));
}

TEST_F(SavePartnersTest, WhatTheyHaveNotToldKeepsAnEvaluationFromCommitting) {
  start();
  step();
  partners.lacks = "boundary 1";
  engine->evaluation.enter();
  engine->evaluation.keep_boundary();
  stop();
  engine->evaluation.tick(true);
  engine->evaluation.leave(false, false);
  EXPECT_THAT(calls_of({"complete", "usual", "committed_from_shelf"}), ElementsAre("complete"));
  EXPECT_TRUE(volume.checkpoints().empty());
}

TEST_F(SavePartnersTest, HearAtTheEndThatTheLastSaveHasBegun) {
  start();
  step();
  engine->end.finish();
  EXPECT_THAT(calls_of({"lift_limit", "torn_rank", "hopeless", "join", "joined", "last_save_begun",
                        "last_save_again"}),
              ElementsAre("torn_rank", "hopeless", "torn_rank", "join", "joined", "last_save_begun"));
}

TEST_F(SavePartnersTest, HearThatTheLastSaveIsTriedAgainBeforeItIs) {
  start();
  step();
  break_disk();
  engine->end.finish();
  EXPECT_THAT(calls_of({"join", "last_save_begun", "last_save_again"}),
              ElementsAre("join", "last_save_begun", "last_save_again", "join"));
}

// Whoever waits for a word about it.
TEST_F(SavePartnersTest, HearThatThereIsNoLastSave) {
  start();
  step();
  partners.no_time = true;
  stop();
  engine->end.finish();
  EXPECT_THAT(calls_of({"lift_limit", "join", "last_save_begun"}),
              ElementsAre("lift_limit", "last_save_begun"));
}

TEST_F(SavePartnersTest, HaveTheirPartOfADigest) {
  start();
  step();
  engine->boundary_saves.digest();
  EXPECT_THAT(calls_of({"part_of"}), ElementsAre("part_of"));
}

TEST_F(SavePartnersTest, LearnOfANoticeThatThisProcessHears) {
  start();
  engine->listener.start();
  stop();
  EXPECT_THAT(calls_of({"heard"}), ElementsAre("heard"));
}

}}  // namespace holdfast::test
