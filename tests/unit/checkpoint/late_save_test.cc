// Saves whose copy runs beside the next step, until an update closes them.
#include "holdfast/checkpoint/internal/late_save.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "engine_rig.h"
#include "holdfast/snapshot/piece_digests.h"

namespace holdfast::test { namespace {

using internal::LateSave;
using testing::HasSubstr;

class LateSaveTest : public EngineTest {
 protected:
  LateSaveTest() { start(); }
  LateSave& late() { return engine->late; }
  bool wanted() { return engine->schedule.wanted(); }
  // Of this boundary; open until the next update is announced.
  SaveHandle begin() {
    const Waiting waiting(run->time);
    const BegunSave save = engine->saves.begin(false);
    late().begin(save, waiting);
    EXPECT_TRUE(late().open());
    return SaveHandle(save);
  }
  // The first copies of a run are made at once and compared. The next one runs beside the training.
  void pass_the_compared_ones() {
    for (int i = 0; i < 2; ++i) {
      step(true);
      const SaveHandle save = begin();
      announce();
      ASSERT_EQ(save.wait(), SaveStatus::durable);
    }
  }
  // A copy beside the training that has ended; empty if there is none.
  Staged copied_beside() {
    begin();
    source.wait_for_late_copy();
    return late().image();
  }
  static void flip(const Staged& image, const std::string& tensor) {
    const ImageLayout& layout = *image.snapshot->layout;
    layout.slot(layout.find(tensor).value(), image.snapshot->arena->bytes())[9] ^= std::byte{4};
  }
  void swap_all_weights() {
    for (std::size_t i = 0; i < 500; ++i) std::swap(source.weight(i), source.weight(999 - i));
  }
};

TEST_F(LateSaveTest, AnAnnouncedUpdateSubmitsWhatIsOpen) {
  step(true);
  const SaveHandle save = begin();
  EXPECT_EQ(save.wait(), SaveStatus::staging) << "this thread alone can close it: it does not wait";
  EXPECT_FALSE(engine->saves.covered()) << "an update may yet spoil it";
  announce();
  EXPECT_FALSE(late().open());
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_TRUE(late().works());
  expect_newest(1);
}

TEST_F(LateSaveTest, AnUnannouncedUpdateDropsAnOpenCopyForGood) {
  step(true);
  const SaveHandle save = begin();
  late().give_up();
  EXPECT_EQ(save.status(), SaveStatus::overtaken);
  EXPECT_FALSE(late().open());
  EXPECT_TRUE(wanted()) << "the save is made again";
  EXPECT_FALSE(late().works());
  EXPECT_TRUE(volume.checkpoints().empty());
  EXPECT_THAT(log.text(), HasSubstr("before_update() was not called before the update of step 2"));
}

TEST_F(LateSaveTest, AChangeBeforeTheUpdateIsNamedAndCopiedEarlyFromThenOn) {
  step(true);
  const SaveHandle first = begin();
  source.weight(5) += 1;  // one element among a thousand
  announce();
  EXPECT_EQ(first.status(), SaveStatus::overtaken);
  EXPECT_TRUE(wanted());
  EXPECT_TRUE(late().works());
  EXPECT_THAT(log.text(), HasSubstr("model/weight changed between after_step and before_update"));
  source.weight(5) -= 1;

  step(true);
  const SaveHandle second = begin();
  const float before = source.weight(5);
  source.weight(5) += 1;
  announce();
  EXPECT_EQ(second.wait(), SaveStatus::durable);
  source.weight(5) = before;
  EXPECT_EQ(volume.checkpoints().size(), 1u);
}

TEST_F(LateSaveTest, AfterTwoThatWereRightTheCopyRunsBesideTheTraining) {
  const auto training = std::this_thread::get_id();
  std::atomic<int> beside{0};
  source.on_late_copy = [&] { beside += std::this_thread::get_id() != training ? 1 : 0; };
  pass_the_compared_ones();
  EXPECT_EQ(beside, 0);
  step(true);
  begin();
  source.wait_for_late_copy();
  EXPECT_EQ(beside, 1);
  swap_all_weights();  // samples show it
  announce();
  EXPECT_TRUE(wanted());
  swap_all_weights();

  beside = 0;
  step(true);
  begin();
  EXPECT_EQ(beside, 0) << "more may change than the samples show: copies are compared again";
}

TEST_F(LateSaveTest, AWholeCopyIsRightAtTheEndWhateverChanged) {
  step(true);
  const SaveHandle save = begin();
  swap_all_weights();
  late().close(true);
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_FALSE(wanted());
  swap_all_weights();
  expect_newest(1);
}

TEST_F(LateSaveTest, ACopyBesideTheTrainingIsComparedAtTheEndToo) {
  pass_the_compared_ones();
  step(true);
  const SaveHandle save = begin();
  source.wait_for_late_copy();
  swap_all_weights();
  late().close(true);
  EXPECT_EQ(save.status(), SaveStatus::overtaken);
  EXPECT_TRUE(wanted());
  expect_newest(2);
}

TEST_F(LateSaveTest, AnImageIsOfTheBoundaryAndLeavesTheCopyOpen) {
  step(true);
  const Digest boundary = engine->boundary_saves.digest();
  begin();
  swap_all_weights();
  const Staged image = late().image();
  ASSERT_TRUE(image);
  EXPECT_EQ(state_digest(*image.snapshot), boundary);
  EXPECT_TRUE(late().open());
  late().drop();
  EXPECT_FALSE(late().image());
}

TEST_F(LateSaveTest, ThereIsNoImageOfACopyThatAChangeMet) {
  pass_the_compared_ones();
  step(true);
  const SaveHandle save = begin();
  source.wait_for_late_copy();
  swap_all_weights();
  EXPECT_FALSE(late().image());
  EXPECT_EQ(save.status(), SaveStatus::overtaken);
  EXPECT_FALSE(late().open());
  EXPECT_TRUE(wanted());
}

TEST_F(LateSaveTest, ABoundaryThatIsCoveredMeanwhileIsNotWrittenTwice) {
  step(true);
  const SaveHandle save = begin();
  const BegunSave other = engine->saves.begin(true);  // of an evaluation, by another thread
  engine->saves.submitted(other);
  announce();
  EXPECT_EQ(save.status(), SaveStatus::overtaken);
  EXPECT_FALSE(wanted());
  EXPECT_TRUE(volume.checkpoints().empty());
  other->settle(SaveStatus::failed, "planted");
}

TEST_F(LateSaveTest, NobodyWaitsForACopyThatTheRunLeavesOpen) {
  step(true);
  const SaveHandle save = begin();
  end();
  EXPECT_EQ(save.status(), SaveStatus::failed);
  EXPECT_THAT(save.error(), HasSubstr("the run ended before it was staged"));
}

TEST_F(LateSaveTest, TheWriterIsHandedTheDigestsOfWhatWasCopiedBesideTheTraining) {
  pass_the_compared_ones();
  step(true);
  {
    const Staged image = copied_beside();
    ASSERT_TRUE(image);
    ASSERT_NE(image.snapshot->digests, nullptr);
    const std::size_t weight = image.snapshot->layout->find("model/weight").value();
    const Inspected* const found = image.snapshot->digests->find(weight);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->digest, digest_of(image.snapshot->bytes(weight)));
  }
  announce();
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  expect_newest(3);
}

TEST_F(LateSaveTest, ANaNThatIsCopiedBesideTheTrainingIsFound) {
  pass_the_compared_ones();
  step(true);
  source.weight(7) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(copied_beside());
  announce();
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  EXPECT_THAT(log.text(), HasSubstr("the state of step 3 is not finite: tensor model/weight"));
}

TEST_F(LateSaveTest, AnImageThatChangesBeforeItIsWrittenIsNeverRead) {
  pass_the_compared_ones();
  step(true);
  flip(copied_beside(), "model/weight");  // this save looks at other pieces
  announce();
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::durable);
  expect_newest(2);
}

TEST_F(LateSaveTest, ASaveThatLooksAtThePieceFailsInstead) {
  pass_the_compared_ones();
  step(true);
  save();
  step(true);
  // Piece 4 of the fourth save, which is round 4: rounds begin with the attempt's number.
  flip(copied_beside(), "optimizer/momentum/weight");
  announce();
  EXPECT_EQ(engine->saves.newest().wait(), SaveStatus::failed);
  EXPECT_THAT(log.text(), HasSubstr("'optimizer/momentum/weight' changed in memory after it was staged"));
  step(true);
  save();
  expect_newest(5);
}

}}  // namespace holdfast::test
