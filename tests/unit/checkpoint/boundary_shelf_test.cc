// The image of a boundary, which whoever hears a notice first commits.
#include "holdfast/checkpoint/internal/boundary_shelf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>

#include "engine_rig.h"

namespace holdfast::test { namespace {

using internal::BoundaryShelf;

class BoundaryShelfTest : public EngineTest {
 protected:
  ~BoundaryShelfTest() override { end_shelf(); }
  // An image of step 1 lies on it.
  void put_one(const std::string& lacks = {}) {
    start();
    shelf.emplace(*run, partners);
    step();
    put({}, lacks);
  }
  void put(SaveHandle tried, const std::string& lacks = {}) {
    shelf->put(engine->saves.stage_all(), std::move(tried), lacks);
  }
  void end_shelf() {
    gate.open();
    shelf.reset();
    end();
  }
  void wait_for_writer() { ASSERT_TRUE(run->writer->wait_idle(20s)); }
  // Whoever hands a save over is held before the writer gets it.
  void hold_the_hand_over() {
    options.writing.on_save = [this](const SaveEvent& event) {
      if (event.status == SaveStatus::staged) gate.pass();
    };
  }

  Gate gate;
  std::optional<BoundaryShelf> shelf;
};

TEST_F(BoundaryShelfTest, WhatLiesOnItIsCommitted) {
  put_one();
  step();  // memory is another step by now
  EXPECT_TRUE(shelf->commit());
  const BegunSave save = shelf->clear();
  ASSERT_TRUE(save);
  EXPECT_EQ(SaveHandle(save).wait(), SaveStatus::durable);
  EXPECT_EQ(save->boundary, clock.now() - 2s) << "the work of the last step is at risk, not of this save";
  EXPECT_FALSE(shelf->commit()) << "there is nothing any more";
  EXPECT_FALSE(shelf->clear());
  end_shelf();
  expect_newest(1);
}

TEST_F(BoundaryShelfTest, TwoThreadsThatCommitAtOnceHandOverOneSave) {
  hold_the_hand_over();
  put_one();
  auto one = std::async(std::launch::async, [&] { return shelf->commit(); });
  gate.await_arrival();
  auto other = std::async(std::launch::async, [&] { return shelf->commit(); });
  EXPECT_EQ(other.wait_for(20s), std::future_status::ready) << "it is on its way: nothing to wait for";
  gate.open();
  EXPECT_TRUE(one.get());
  EXPECT_TRUE(other.get());
  EXPECT_EQ(SaveHandle(shelf->clear()).wait(), SaveStatus::durable);
  wait_for_writer();
  EXPECT_EQ(run->book->figures().durable, 1);
}

TEST_F(BoundaryShelfTest, ClearWaitsForAHandOverInProgress) {
  hold_the_hand_over();
  put_one();
  auto other = std::async(std::launch::async, [&] { return shelf->commit(); });
  gate.await_arrival();
  auto cleared = std::async(std::launch::async, [&] { return shelf->clear(); });
  EXPECT_EQ(cleared.wait_for(50ms), std::future_status::timeout);
  gate.open();
  const BegunSave save = cleared.get();
  ASSERT_TRUE(save);
  EXPECT_EQ(SaveHandle(save).wait(), SaveStatus::durable);
  EXPECT_TRUE(other.get());
}

TEST_F(BoundaryShelfTest, AFailedSaveIsNotRetriedBeforeTwoSeconds) {
  put_one();
  break_disk();
  EXPECT_TRUE(shelf->commit());
  wait_for_writer();
  EXPECT_FALSE(shelf->commit());
  clock.advance(2s - 1ms);
  EXPECT_FALSE(shelf->commit());
  mend_disk();
  clock.advance(1ms);
  EXPECT_TRUE(shelf->commit());
  EXPECT_EQ(SaveHandle(shelf->clear()).wait(), SaveStatus::durable);
}

TEST_F(BoundaryShelfTest, WhatIsDurableIsNotWrittenAgain) {
  put_one();
  save();
  put(engine->saves.newest());
  EXPECT_TRUE(shelf->commit());
  EXPECT_FALSE(shelf->clear());
}

TEST_F(BoundaryShelfTest, WhatTheImageLacksKeepsItFromBeingCommitted) {
  put_one("boundary 1");
  EXPECT_EQ(shelf->lacks(), "boundary 1");
  EXPECT_FALSE(shelf->commit());
  EXPECT_THROW(shelf->complete("boundary 1", [](const Snapshot&) { throw std::runtime_error("planted"); }),
               std::runtime_error);
  EXPECT_FALSE(shelf->commit()) << "it was not put in";
  EXPECT_TRUE(shelf->complete("boundary 1", [](const Snapshot& image) { EXPECT_EQ(image.step, 1); }));
  EXPECT_EQ(shelf->lacks(), "");
  partners.completes = false;
  EXPECT_FALSE(shelf->commit()) << "the others say no";
  partners.completes = true;
  EXPECT_TRUE(shelf->commit());
}

TEST_F(BoundaryShelfTest, TheTextOfAnotherEvaluationIsPutNowhere) {
  int put_in = 0;
  const auto count = [&](const Snapshot&) { ++put_in; };
  put_one("boundary 1");
  EXPECT_FALSE(shelf->complete("boundary 0", count));
  shelf->clear();
  EXPECT_EQ(shelf->lacks(), std::nullopt);
  EXPECT_FALSE(shelf->complete("boundary 1", count)) << "it came too late";
  put({}, "boundary 2");
  EXPECT_FALSE(shelf->complete("boundary 1", count));
  EXPECT_EQ(put_in, 0);
  EXPECT_FALSE(shelf->commit());
}

TEST_F(BoundaryShelfTest, NothingBeginsThatCannotEndInTime) {
  put_one();
  run->costs.committed(60s);
  deadline(30s);
  EXPECT_FALSE(shelf->commit());
  withdraw();
  EXPECT_TRUE(shelf->commit());
}

TEST_F(BoundaryShelfTest, NothingBeginsOnceANewerAttemptHasTheDirectory) {
  put_one();
  const Attempt rival(volume.options());
  EXPECT_TRUE(shelf->commit());
  wait_for_writer();
  EXPECT_TRUE(run->writer->superseded());
  clock.advance(10s);
  EXPECT_FALSE(shelf->commit());
  EXPECT_TRUE(volume.checkpoints().empty());
}

}}  // namespace holdfast::test
