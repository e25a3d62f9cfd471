// Two ranks of one run with the parts of a Checkpointer each, in one thread: a test lets both vote.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "holdfast/checkpoint/internal/engine.h"
#include "holdfast/checkpoint/internal/rank_partners.h"
#include "holdfast/checkpoint/internal/rank_votes.h"
#include "holdfast/checkpoint/internal/share_sender.h"
#include "rig.h"
#include "support/memory_world.h"

namespace holdfast::test {

using namespace std::chrono_literals;

struct RankParts {
  RankParts(RankChannel& channel, const CheckpointerOptions& options)
      : source({.rank = channel.rank()}), group(channel, source), run(group.source(), options) {
    group.begin_sharing(1, run.clock);
  }
  // Both come to their next boundary.
  void step() {
    engine.boundary.leave();
    engine.boundary.arrive(source.train());
    run.time.step(run.clock.now(), run.writer ? run.writer->activity() : 0);
    run.book->boundary(source.step());
  }
  void hear(NoticeKind kind, std::optional<Duration> left = {}) {
    Notice notice{.source = "test", .kind = kind, .text = "SIGTERM"};
    if (left) notice.deadline = run.clock.now() + *left;
    run.monitor.post(notice);
  }

  MemorySource source;
  internal::RankGroup group;
  internal::Run run;
  internal::RankPartners partners{run, group};
  internal::Engine engine{run, partners};
  internal::SharedRounds& rounds = partners.rounds();
  internal::ShareSender sender{engine, group, rounds};
  internal::RankVotes votes{engine, group, rounds, sender};
};

class RankTest : public testing::Test {
 protected:
  void start() {
    zero = std::make_unique<RankParts>(world.rank(0), options);
    one = std::make_unique<RankParts>(world.rank(1), options);
    zero->engine.start.claim(2, {});
    one->engine.start.begin();
  }
  void step() {
    clock.advance(2s);
    zero->step();
    one->step();
  }
  // Counts what both have posted, and lets both learn of it.
  Agreed count() {
    const Agreed agreed = zero->votes.await("a vote");
    zero->votes.learn(agreed);
    one->votes.learn(one->votes.await("a vote"));
    return agreed;
  }
  Agreed vote() {
    zero->votes.post(zero->engine.plan());
    one->votes.post(Plan{});
    return count();
  }
  Agreed vote_last() {
    zero->votes.post_last();
    one->votes.post_last();
    return count();
  }

  Volume volume;
  FakeClock& clock = volume.clock;
  CapturedLog log;
  MemoryWorld world{2};
  CheckpointerOptions options = volume.options();
  std::unique_ptr<RankParts> zero;
  std::unique_ptr<RankParts> one;
};

}  // namespace holdfast::test
