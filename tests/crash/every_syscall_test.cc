// The real Checkpointer in a process that is killed at the system calls that could change its run directory,
// whichever thread makes them. What acknowledged steps there were must be found again by the next
// life, which ends in the state of the run that nothing disturbed.
//
// By day at some of them, of every kind: crash/call_points.h. HOLDFAST_NIGHTLY=1 kills before and after all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "crash/call_points.h"
#include "crash/driver_run.h"
#include "holdfast/store/names.h"
#include "support/in_parallel.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

using std::filesystem::path;

struct Points {
  std::atomic<int> before{0};
  std::atomic<int> after{0};
  std::atomic<int> resumed{0};
  std::atomic<int> moved{0};      // the life made fewer calls this time: its last one did
  std::atomic<int> at_stake{0};   // of them: after a step was acknowledged
  std::atomic<int> lost{0};       // an acknowledged step
  std::atomic<int> stuck{0};      // the next life did not come to its end
  std::atomic<int> different{0};  // it ended in another state
};

// A life that is cut short at every point, and what it finds.
struct Story {
  std::int64_t steps = 0;
  std::vector<std::string> pace;                          // of this life alone
  std::vector<std::string> size;                          // of all lives
  std::function<void(const path& directory)> past;        // empty: there is nothing yet
  std::int64_t acknowledged = -1;                         // by the past
  std::vector<std::pair<std::string, std::string>> must;  // make such calls on such paths, or it proves less
};

class EverySyscall : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
  }
  static void TearDownTestSuite() {
    if (totals.before == 0) return;
    std::printf(
        "every syscall: %d points before, %d after, %d lives resumed, %d with something to lose, %d lost, %d "
        "stuck, %d different\n",
        totals.before.load(), totals.after.load(), totals.resumed.load(), totals.at_stake.load(),
        totals.lost.load(), totals.stuck.load(), totals.different.load());
  }

  void tell(const Story& story);

  std::vector<ChangingCall> calls_;  // of the life that nobody cut short

 private:
  std::vector<std::string> words(const Story& story) const {
    std::vector<std::string> all = story.size;
    all.insert(all.end(), story.pace.begin(), story.pace.end());
    return all;
  }
  void prepare(const path& directory) const {
    if (exists(past_.path() / "run"))
      copy(past_.path() / "run", directory, std::filesystem::copy_options::recursive);
  }
  void count(const Story& story);
  void cut(const Story& story, std::size_t number, Moment moment);
  void resume(const Story& story, const path& directory, std::int64_t acknowledged);

  static inline Points totals;
  TemporaryFolder past_;
  std::string straight_;
};

void EverySyscall::tell(const Story& story) {
  if (story.past) story.past(past_.path() / "run");
  if (HasFatalFailure()) return;
  straight_ = straight_state(story.steps, story.size);
  ASSERT_NO_FATAL_FAILURE(count(story));
  const int before = totals.before;
  const int after = totals.after;
  const int moved = totals.moved;
  const int at_stake = totals.at_stake;
  const std::vector<CallPoint> points = points_of(calls_);
  in_parallel(points.size(), [&](std::size_t i) {
    if (!HasFailure()) cut(story, points[i].number, points[i].moment);
  });
  EXPECT_EQ(totals.before - before + totals.after - after, points.size()) << "points were planned";
  EXPECT_LE(totals.moved - moved, points.size() / 5) << "were moved";
  EXPECT_GT(totals.at_stake - at_stake, points.size() / 4) << "hardly any had acknowledged a step";
}

void EverySyscall::count(const Story& story) {
  const TemporaryFolder folder;
  prepare(folder.path() / "run");
  SyscallTracer life(driver(folder.path() / "run", story.steps, words(story)), quiet(),
                     folder.path() / "run");
  const Ended ended = life.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(state_in(ended.last_line()), straight_);
  EXPECT_TRUE(life.hidden().empty()) << life.hidden().front();
  calls_ = life.calls();
  for (const auto& must : story.must) {
    EXPECT_TRUE(std::any_of(calls_.begin(), calls_.end(),
                            [&](const ChangingCall& call) {
                              return call.name.starts_with(must.first) &&
                                     call.text().find(must.second) != std::string::npos;
                            }))
        << "no " << must.first << " of " << must.second;
  }
}

void EverySyscall::cut(const Story& story, std::size_t number, Moment moment) {
  SCOPED_TRACE(std::string("killed ") + name_of(moment) + " call " + std::to_string(number) + ", " +
               calls_[number - 1].text());
  // Threads may make fewer calls this time: then the point is looked for again, and in the end the last call
  // that there is has to do.
  const std::size_t planned = number;
  for (int tries = 0; tries < 10; ++tries) {
    const TemporaryFolder folder;
    const path directory = folder.path() / "run";
    prepare(directory);
    SyscallTracer life(driver(directory, story.steps, words(story)), quiet(), directory);
    if (!life.run_to(number, moment)) {
      if (tries >= 4) number = std::min(number, life.calls().size());
      continue;
    }
    const Ended ended = life.kill();
    EXPECT_EQ(ended.signal, SIGKILL);
    if (number != planned) ++totals.moved;
    ++(moment == Moment::before ? totals.before : totals.after);
    resume(story, directory, std::max(story.acknowledged, last_step(ended.out, "acknowledged")));
    return;
  }
  ADD_FAILURE() << "that point was never reached";
}

void EverySyscall::resume(const Story& story, const path& directory, std::int64_t acknowledged) {
  const Ended ended = drive(directory, story.steps, story.size);
  ++totals.resumed;
  if (acknowledged >= 0) ++totals.at_stake;
  if (ended.exit_code != 0) {
    ++totals.stuck;
    ADD_FAILURE() << "the next life ended with " << ended.exit_code << ", signal " << ended.signal << ": "
                  << ended.err;
    return;
  }
  if (const auto started = last_step(ended.out, "started"); started < acknowledged) {
    ++totals.lost;
    ADD_FAILURE() << "step " << acknowledged << " was acknowledged, the next life began at " << started;
  }
  if (state_in(ended.last_line()) != straight_) {
    ++totals.different;
    ADD_FAILURE() << ended.last_line() << " instead of state=" << straight_;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    EXPECT_FALSE(parse_temporary_name(entry.path().filename().native()))
        << entry.path() << " was left behind";
  }
}

TEST_F(EverySyscall, FirstSavesAndRetention) {
  tell({.steps = 4,
        .pace = {"every=1", "keep=2", "wait"},
        .must = {{"mkdir", "/attempts"},
                 {"rename", "step-000000000001-a0001.h5"},
                 {"unlink", "step-000000000002-a0001.h5"}}});
}

// The state is copied beside the next step, and its file written beside the one after that.
TEST_F(EverySyscall, StagedBesideTheNextStep) {
  tell({.steps = 5,
        .pace = {"every=1", "keep=2", "wait", "announced"},
        .must = {{"rename", "step-000000000001-a0001.h5"}, {"unlink", "step-000000000002-a0001.h5"}}});
}

void flip_a_byte(const path& file) {
  std::string bytes = read_text(file);
  bytes[bytes.size() / 2] ^= 1;
  write_text(file, bytes);
}

// The newest file is damaged, and two that were damaged earlier have been kept.
TEST_F(EverySyscall, RecoveryFromDamage) {
  tell({.steps = 7,
        .pace = {"every=2", "keep=2", "wait"},
        .past =
            [](const path& directory) {
              ASSERT_EQ(drive(directory, 5, {"every=1", "wait"}).exit_code, 0);
              flip_a_byte(directory / checkpoint_name({.attempt = 1, .step = 5}));
              write_text(directory / damaged_name({.attempt = 1, .step = 1}), "x");
              write_text(directory / damaged_name({.attempt = 1, .step = 2}), "x");
            },
        .acknowledged = 4,
        .must = {{"rename", "step-000000000005-a0001.h5.damaged"},
                 {"unlink", "step-000000000001-a0001.h5.damaged"},
                 {"unlink", "step-000000000003-a0001.h5"}}});
}

// The past was killed while it wrote, and the life after it in its recovery.
TEST_F(EverySyscall, RecoveryFromKilledLives) {
  tell({.steps = 6,
        .pace = {"every=2", "keep=2", "wait"},
        .past =
            [](const path& directory) {
              SyscallTracer first(driver(directory, 9, {"every=1", "wait"}), quiet(), directory);
              ASSERT_TRUE(first.run_to(
                  [](const ChangingCall& call) {
                    return call.path.find("/tmp-a0001-step-4-") != std::string::npos;
                  },
                  Moment::after));
              first.kill();
              SyscallTracer second(driver(directory, 9), quiet(), directory);
              ASSERT_TRUE(second.run_to(
                  [](const ChangingCall& call) { return call.path.ends_with("tmp-a0002-state"); },
                  Moment::after));
              second.kill();
            },
        .acknowledged = 3,
        .must = {{"openat", "/attempts/3"}, {"unlink", "tmp-a0002-state"}}});
}

// Training goes on beside the writer and its helpers; at night with an image of several write blocks.
TEST_F(EverySyscall, WhileTrainingGoesOn) {
  tell({.steps = 4,
        .pace = {"every=2", "beside"},
        .size = {nightly() ? "elements=2200000" : "elements=200000"}});
  std::set<pid_t> threads;
  for (const ChangingCall& call : calls_) threads.insert(call.thread);
  EXPECT_GE(threads.size(), 3U) << "the training thread, the writer, and who helps it";
}

}}  // namespace holdfast::test
