// A state that no file can hold on one rank alone ends all ranks with 64, at one step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "noticed.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::Each;
using testing::StartsWith;

// More than the attributes of a file can be.
void make_too_large(MemorySource& source) { source.extra["log"] = std::string(17U << 20, 'x'); }

class UnsavableRank : public Together {
 protected:
  CapturedLog log;
};

// Its own part is too large, or what it shares with the others differs.
TEST_F(UnsavableRank, AStateThatOneRankCannotSaveEndsAllWith64AtOneStep) {
  for (const int sees : {1, 2}) {
    for (const int culprit : {0, 1}) {
      for (const std::int64_t since : {0, 4}) {
        SCOPED_TRACE("rank " + std::to_string(culprit) + ", " + std::to_string(sees) + " see, since " +
                     std::to_string(since));
        start_over();
        seers = sees;
        options.every = {SaveEvery::steps(3)};
        live(2, [&](Member& one) {
          one.train_to(since);
          if (one.rank == culprit) make_too_large(one.source);
          one.train_to(20);
          one.finish();
        });
        EXPECT_THAT(errors(), Each(StartsWith("64 ")));
        EXPECT_THAT(member(culprit).error, HasSubstr("cannot be stored"));
        EXPECT_THAT(member(1 - culprit).error, HasSubstr("rank " + std::to_string(culprit)));
        EXPECT_EQ(member(0).source.step(), member(1).source.step());
      }
    }
  }
}

TEST_F(UnsavableRank, AStateThatOneRankCannotSaveEndsAllWith64AlsoAtAStop) {
  for (const int culprit : {0, 1}) {
    SCOPED_TRACE(culprit);
    start_over();
    live(2, [&](Member& one) {
      one.train_to(4);
      if (one.rank == culprit) make_too_large(one.source);
      if (one.rank == 1) one.announcer.stop(one.clock.now() + 1h);
      one.train_to(20);
      one.finish();
    });
    EXPECT_THAT(errors(), Each(StartsWith("64 ")));
    EXPECT_EQ(member(0).source.step(), member(1).source.step());
  }
}

}}  // namespace holdfast::test
