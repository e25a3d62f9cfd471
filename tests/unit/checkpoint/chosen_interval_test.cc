// A Checkpointer that chooses its save interval itself.
#include "holdfast/ledger/ledger_reader.h"
#include "rig.h"
#include "support/ledger_text.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

// Steps of 5 s for so long; the steps that were saved.
std::vector<std::int64_t> saved_steps(Volume& volume, Duration time, std::vector<SaveEvery> every) {
  Attempt attempt(volume.options(std::move(every)));
  std::vector<std::int64_t> saved;
  for (const SteadyTime end = volume.clock.now() + time; volume.clock.now() < end;) {
    volume.clock.advance(5s);
    if (attempt.step().saved) {
      saved.push_back(attempt.source.step());
      attempt.checkpointer.save().wait();
    }
  }
  return saved;
}

TEST(ChosenInterval, TheFirstSaveComesEarlyAndFreeOnesComeOften) {
  Volume volume;
  const auto saved = saved_steps(volume, 5min, {SaveEvery::automatic()});
  ASSERT_GE(saved.size(), 3U);
  EXPECT_EQ(saved[0], 4) << "after 20 s";
  EXPECT_EQ(saved[2] - saved[1], 2) << "the clock stands still while this disk writes: the shortest interval";
}

TEST(ChosenInterval, ItsLimitsHold) {
  Volume volume;
  const auto saved = saved_steps(volume, 5min, {SaveEvery::automatic({.shortest = 100s, .longest = 100s})});
  EXPECT_EQ(saved, (std::vector<std::int64_t>{4, 24, 44}));
}

TEST(ChosenInterval, EarlierLivesAreRead) {
  Volume volume;
  saved_steps(volume, 1min, {});
  CapturedLog log;
  volume.disk.put(volume.path(ledger_name(1)), "nonsense\n");
  EXPECT_FALSE(saved_steps(volume, 2min, {SaveEvery::automatic()}).empty());
  EXPECT_THAT(log.text(), testing::Not(testing::HasSubstr("without earlier attempts")));
}

}}  // namespace holdfast::test
