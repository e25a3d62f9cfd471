// The speed limit of writes, while somebody waits for one against time.
#include "holdfast/checkpoint/internal/write_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine_rig.h"

namespace holdfast::test { namespace {

using internal::WriteLimit;
using testing::ElementsAre;

class WriteLimitTest : public EngineTest {
 protected:
  WriteLimitTest() : EngineTest({.elements = 100'000}) {
    options.writing.write_limit = 0.1;  // MB/s: a file lasts several seconds of the run's clock
  }
  WriteLimit& limit() { return engine->limit; }
  bool next_save_is_slow() {
    step();
    const SteadyTime began = clock.now();
    save();
    return clock.now() - began > 1s;
  }
};

TEST_F(WriteLimitTest, LiftsAndRestoresWhatTheWriterKeeps) {
  start();
  EXPECT_TRUE(next_save_is_slow());
  limit().lift();
  EXPECT_TRUE(limit().lifted());
  EXPECT_FALSE(next_save_is_slow());
  limit().restore();
  EXPECT_FALSE(limit().lifted());
  EXPECT_TRUE(next_save_is_slow());
}

TEST_F(WriteLimitTest, StaysLiftedWhileADeadlineStands) {
  start();
  limit().lift();
  deadline(1h);
  limit().restore();
  EXPECT_TRUE(limit().lifted());
  EXPECT_FALSE(next_save_is_slow());
  withdraw();
  limit().restore();
  EXPECT_FALSE(limit().lifted());
}

TEST_F(WriteLimitTest, StaysLiftedAfterAStop) {
  start();
  limit().lift();
  stop();
  limit().restore();
  EXPECT_TRUE(limit().lifted());
  EXPECT_FALSE(next_save_is_slow());
}

// Other ranks may write under a limit while this process writes nothing.
TEST_F(WriteLimitTest, TellsTheOthersEachTime) {
  make();
  limit().lift();
  limit().restore();
  EXPECT_THAT(partners.calls(), ElementsAre("lift_limit", "restore_limit"));
  EXPECT_FALSE(limit().lifted()) << "a process that does not commit has no writer";
}

}}  // namespace holdfast::test
