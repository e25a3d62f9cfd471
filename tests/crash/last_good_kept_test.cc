// Bad saves never cost the last good checkpoint. Weeks of saves that nobody wants run through the real
// Checkpointer: losses and parameters that are not numbers, a branch from an older step, a start over where
// nothing could be read, full disks in between. After each save the good files are there, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "holdfast/base/log.h"
#include "unit/checkpoint/rig.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::HasSubstr;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// One line for all, when the last test is done.
class Tally : public testing::Environment {
 public:
  static inline int saves = 0;
  static inline int not_finite = 0;
  static inline int full = 0;
  static inline int attempts = 0;
  static inline int looks = 0;
  static inline int lost = 0;

  void TearDown() override {
    std::printf(
        "last good kept: %d saves (%d of them not finite) and %d onto full disks, in %d attempts; %d looks, "
        "%d "
        "lost\n",
        saves, not_finite, full, attempts, looks, lost);
  }
};
// NOLINTNEXTLINE(cert-err58-cpp): as googletest wants it
const testing::Environment* const kTally = testing::AddGlobalTestEnvironment(new Tally);

enum class Mood { good, loss_is_nan, weight_is_nan, weight_is_infinite };

// A run directory, and what a user would want to find in it.
class LastGoodKept : public testing::Test {
 public:
  LastGoodKept() { set_log_level(LogLevel::off); }
  ~LastGoodKept() override { set_log_level(LogLevel::info); }

  // An attempt that goes on from where a start leads, and its history.
  struct Life {
    Attempt run;
    std::vector<std::string> history;  // files, oldest first

    Life(LastGoodKept& past, const CheckpointerOptions& options)
        : run(options, kState), history(past.histories_[run.resumed.checkpoint]) {
      ++Tally::attempts;
    }
  };

  CheckpointerOptions options(int keep = 2) {
    CheckpointerOptions options = volume_.options();
    options.keep = KeepLast{keep};
    return options;
  }

  // One step, one save; every eleventh onto a full disk. What retention made of it shows at the next look.
  void save(Life& life, Mood mood) {
    StepReport report = life.run.source.train();
    if (mood == Mood::loss_is_nan) report.loss = kNaN;
    if (mood == Mood::weight_is_nan) life.run.source.weight(3) = std::numeric_limits<float>::quiet_NaN();
    if (mood == Mood::weight_is_infinite) life.run.source.weight(5) = kInfinity;
    life.run.checkpointer.after_step(report);
    if (++turn_ % 11 == 0) {
      volume_.disk.set_capacity(1000);
      EXPECT_EQ(life.run.checkpointer.save().wait(), SaveStatus::failed);
      volume_.disk.set_capacity(UINT64_MAX);
      ++Tally::full;
      return look(life);
    }
    ASSERT_EQ(life.run.checkpointer.save().wait(), SaveStatus::durable);
    ++Tally::saves;
    Tally::not_finite += mood == Mood::good ? 0 : 1;
    const std::string name = life.run.checkpointer.last_durable().checkpoint;
    life.history.push_back(name);
    histories_[name] = life.history;
    contents_[name] = volume_.disk.get(volume_.path(name));
    if (mood == Mood::good) finite_.insert(name);
    look(life);
  }

  // The newest good file of the history is there, and every file is what it was.
  void look(const Life& life) {
    for (auto name = life.history.rbegin(); name != life.history.rend(); ++name) {
      if (!finite_.contains(*name)) continue;
      expect_whole(*name);
      break;
    }
    for (const std::string& name : guarded_) expect_whole(name);
  }
  void expect_whole(const std::string& name) {
    ++Tally::looks;
    const bool whole =
        volume_.disk.exists(volume_.path(name)) && volume_.disk.get(volume_.path(name)) == contents_.at(name);
    if (!whole) ++Tally::lost;
    ASSERT_TRUE(whole) << name;
  }
  // From now on each of them has to stay.
  void guard(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      guarded_.insert(name);
      contents_[name] = volume_.disk.get(volume_.path(name));
    }
  }
  void power_cut() { volume_.disk = volume_.disk.crash(); }

  static inline const MemorySource::Options kState = {.elements = 50};
  Volume volume_;
  std::map<std::string, std::vector<std::string>> histories_;
  std::map<std::string, std::vector<std::byte>> contents_;  // when each was written
  std::set<std::string> finite_;
  std::set<std::string> guarded_;
  int turn_ = 0;
};

std::string step_file(int step, int attempt) {
  return checkpoint_name({.attempt = static_cast<AttemptNumber>(attempt), .step = step});
}

// Six attempts that save nothing good any more, in every way a state can be bad.
class AWeekOfNaN : public LastGoodKept, public testing::WithParamInterface<Mood> {};

TEST_P(AWeekOfNaN, KeepsTheLastGoodFile) {
  std::int64_t last_good = 0;
  {
    Life life(*this, options());
    for (int i = 0; i < 9; ++i) save(life, Mood::good);
    last_good = life.run.source.step();
    for (int i = 0; i < 20; ++i) save(life, GetParam());
  }
  const std::string good = step_file(static_cast<int>(last_good), 1);
  ASSERT_TRUE(finite_.contains(good));
  for (int attempt = 2; attempt <= 6; ++attempt) {
    if (attempt % 2 == 0) power_cut();
    Life life(*this, options(2 + attempt % 2));
    EXPECT_EQ(life.run.checkpointer.attempt(), static_cast<AttemptNumber>(attempt));
    for (int i = 0; i < 20 && !HasFatalFailure(); ++i) save(life, GetParam());
    expect_whole(good);
    if (attempt % 2 != 0) life.run.checkpointer.finish();
  }
  CheckpointerOptions back = options();
  back.start.resume_from = std::to_string(last_good);
  Life life(*this, back);
  EXPECT_EQ(life.run.resumed.checkpoint, good);
  EXPECT_EQ(life.run.state(), state_after(last_good, kState));
}

INSTANTIATE_TEST_SUITE_P(Bad, AWeekOfNaN,
                         testing::Values(Mood::loss_is_nan, Mood::weight_is_nan, Mood::weight_is_infinite),
                         [](const auto& info) {
                           switch (info.param) {
                             case Mood::loss_is_nan:
                               return "LossIsNaN";
                             case Mood::weight_is_nan:
                               return "WeightIsNaN";
                             default:
                               return "WeightIsInfinite";
                           }
                         });

// The way back to an older step is a branch; the one that was left stays as it is.
TEST_F(LastGoodKept, ARollbackLeavesTheOtherBranchAlone) {
  {
    Life life(*this, options(4));
    for (int i = 0; i < 10; ++i) save(life, Mood::good);
    for (int i = 0; i < 3; ++i) save(life, Mood::loss_is_nan);
    life.run.checkpointer.finish();
  }
  {
    Life life(*this, options(4));
    for (int i = 0; i < 5; ++i) save(life, Mood::weight_is_nan);
  }
  // What the user goes back to, and what lies beyond it.
  const std::vector<std::string> held = volume_.checkpoints();
  const std::string point =
      *std::find_if(held.begin(), held.end(), [&](const auto& name) { return finite_.contains(name); });
  std::vector<std::string> beyond = held;
  std::erase(beyond, point);
  guard(beyond);
  CheckpointerOptions back = options();
  back.start.resume_from = point;
  {
    Life life(*this, back);
    EXPECT_EQ(life.run.resumed.checkpoint, point);
    for (int i = 0; i < 6; ++i) save(life, Mood::good);
  }
  for (int attempt = 4; attempt <= 7; ++attempt) {
    if (attempt % 2 == 0) power_cut();
    Life life(*this, options());
    EXPECT_THAT(life.run.resumed.checkpoint, HasSubstr("-a000" + std::to_string(attempt - 1)));
    for (int i = 0; i < 15 && !HasFatalFailure(); ++i)
      save(life, i % 3 == 2 ? Mood::loss_is_nan : Mood::good);
  }
  // And back to the branch that was left: now the other one is to stay.
  guarded_.clear();
  const auto all = volume_.checkpoints();
  guard({all.end() - 2, all.end()});
  back.start.resume_from = beyond.back();
  Life life(*this, back);
  EXPECT_EQ(life.run.resumed.checkpoint, beyond.back());
  for (int i = 0; i < 5; ++i) save(life, Mood::good);
}

// A branch that dies before its first commit has changed nothing.
TEST_F(LastGoodKept, ARollbackThatSavesNothingChangesNothing) {
  {
    Life life(*this, options(4));
    for (int i = 0; i < 8; ++i) save(life, Mood::good);
  }
  const auto held = volume_.checkpoints();
  guard(held);
  for (int i = 0; i < 5; ++i) {
    CheckpointerOptions back = options();
    back.start.resume_from = held.front();
    Life life(*this, back);
    life.run.source.train();
    look(life);
    power_cut();
  }
  EXPECT_EQ(volume_.checkpoints(), held);
  Life life(*this, options(4));
  EXPECT_EQ(life.run.resumed.checkpoint, held.back());
}

int exit_code_of_a_start(const CheckpointerOptions& options) {
  MemorySource source(LastGoodKept::kState);
  try {
    Checkpointer(source, options).resume();
  } catch (const Error& error) {
    return static_cast<int>(error.exit_code());
  }
  return 0;
}

// A volume that cannot be read says nothing about its files; damage that is no damage is over one day.
TEST_F(LastGoodKept, AStartOverDeletesNothing) {
  {
    Life life(*this, options(5));
    for (int i = 0; i < 8; ++i) save(life, Mood::good);
    life.run.checkpointer.finish();
  }
  const auto held = volume_.checkpoints();
  ASSERT_GE(held.size(), 5U);
  const std::string newest = held.back();
  const auto names = volume_.disk.names(kRun);
  CheckpointerOptions over = options();
  over.start.allow_fresh = true;

  volume_.faults.fail(Op::read, 1, EIO, {.for_ever = true});
  EXPECT_EQ(exit_code_of_a_start(options()), 74);
  EXPECT_EQ(exit_code_of_a_start(over), 74);
  volume_.faults.clear_faults();
  EXPECT_EQ(volume_.disk.names(kRun), names);

  const auto flip_all = [&] {
    for (const std::string& name : held) {
      volume_.disk.flip_bit(volume_.path(name), volume_.disk.get(volume_.path(name)).size() - 100);
    }
  };
  flip_all();
  guard(held);  // as they are now
  EXPECT_EQ(exit_code_of_a_start(options()), 78);
  EXPECT_EQ(volume_.disk.names(kRun), names);
  for (int attempt = 0; attempt < 8; ++attempt) {
    if (attempt % 3 == 1) power_cut();
    Life life(*this, over);
    EXPECT_EQ(life.run.resumed.fresh, attempt == 0);
    for (int i = 0; i < 15 && !HasFatalFailure(); ++i)
      save(life, i % 4 == 3 ? Mood::weight_is_nan : Mood::good);
    life.run.checkpointer.finish();
  }
  EXPECT_THAT(volume_.disk.names(kRun), Not(Contains(HasSubstr(".damaged"))));

  // The cable was loose: the files were good all the time.
  flip_all();
  guard(held);
  CheckpointerOptions back = options();
  back.start.resume_from = newest;
  Life life(*this, back);
  EXPECT_EQ(life.run.resumed.checkpoint, newest);
  EXPECT_EQ(life.run.state(), state_after(life.run.source.step(), kState));
}

}}  // namespace holdfast::test
