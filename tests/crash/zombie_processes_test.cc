// Processes that stand still inside a save while a newer attempt takes over, for real: held at every system
// call that could change the run directory, or by SIGSTOP at random moments. The newer one's history wins,
// the older one exits 76, acknowledges nothing more and touches nothing that is not its own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "crash/call_points.h"
#include "crash/driver_run.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/in_parallel.h"
#include "support/syscall_tracer.h"

namespace holdfast::test { namespace {

using std::filesystem::path;
using Listing = std::map<std::string, std::string>;  // name -> digest of the content

constexpr int kSuperseded = 76;

Listing listing(const path& directory) {
  Listing all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string text = entry.is_regular_file() ? read_text(entry.path()) : "";
    all[entry.path().lexically_relative(directory)] =
        to_hex(digest_of(std::as_bytes(std::span(text)))) + (entry.is_directory() ? " (directory)" : "");
  }
  return all;
}

// What an attempt may leave or change after it was superseded: its temporary files, its claim, its ledger.
bool is_own(const std::string& name, AttemptNumber attempt) {
  const path file = path(name).filename();
  return parse_temporary_name(file.native()) == attempt || parse_claim_name(file.native()) == attempt ||
         name == ledger_name(attempt);
}

std::vector<std::string> touched(const Listing& before, const Listing& after, AttemptNumber zombie) {
  std::vector<std::string> found;
  for (const auto& [name, digest] : before) {
    const auto now = after.find(name);
    if (now != after.end() && now->second == digest) continue;
    if (!is_own(name, zombie)) found.push_back(name + (now == after.end() ? " is gone" : " has changed"));
  }
  for (const auto& [name, digest] : after) {
    if (!before.contains(name) && !is_own(name, zombie)) found.push_back(name + " is new");
  }
  return found;
}

RunState believed(const path& directory) {
  return read_run_state(*FileSystem::real().open_directory(directory, false)).value_or(RunState{});
}

bool says_complete(const path& directory, AttemptNumber attempt) {
  const auto state = run_state_from_json(read_text(directory / kRunStateName));
  return state && state->attempt == attempt && state->phase == RunPhase::complete;
}

// The newest step that a process has acknowledged which stands at the last of these calls: its rename, the
// sync of the directory, and something that comes after. It may not have said so yet.
std::int64_t acknowledged_by(const std::vector<ChangingCall>& calls) {
  for (std::size_t i = calls.size(); i-- > 0;) {
    const auto id = parse_checkpoint_name(path(calls[i].to).filename().native());
    if (id && i + 2 < calls.size()) return id->step;
  }
  return -1;
}

struct Counts {
  std::atomic<int> held{0};        // points at which a first process was held
  std::atomic<int> superseded{0};  // of them: it had claimed, and ended with 76
  std::atomic<int> alive{0};       // the second was still at work when the first went on
  std::atomic<int> left_out{0};    // points at which the first was complete already
  std::atomic<int> died{0};        // the second died before its first commit
  std::atomic<int> stops{0};       // SIGSTOP at a random moment
};

class ZombieProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = SyscallTracer::why_not()) GTEST_SKIP() << *why;
    straight_ = straight_state(kEnd);
  }
  static void TearDownTestSuite() {
    if (counts.held == 0) return;
    std::printf(
        "zombie processes: held at %d points (%d superseded), beside a second at work at %d (%d left out, "
        "complete "
        "already), with a second that died at %d, stopped by signal %d times\n",
        counts.held.load(), counts.superseded.load(), counts.alive.load(), counts.left_out.load(),
        counts.died.load(), counts.stops.load());
  }

  // The newest file is damaged, an older one was, and a temporary file is left.
  void make_past() {
    const path directory = past_.path() / "run";
    SyscallTracer life(driver(directory, 9, {"every=1", "wait"}), quiet(), directory);
    ASSERT_TRUE(life.run_to(
        [](const ChangingCall& call) { return call.path.find("/tmp-a0001-step-5-") != std::string::npos; },
        Moment::after));
    life.kill();
    const path newest = directory / checkpoint_name({.attempt = 1, .step = 4});
    std::string bytes = read_text(newest);
    ASSERT_FALSE(bytes.empty());
    bytes[bytes.size() / 2] ^= 1;
    write_text(newest, bytes);
    first_attempt_ = 2;
    first_end_ = 6;
  }
  path prepare(const TemporaryFolder& folder) const {
    path directory = folder.path() / "run";
    if (exists(past_.path() / "run")) {
      copy(past_.path() / "run", directory, std::filesystem::copy_options::recursive);
    }
    return directory;
  }
  std::vector<std::string> first(const path& directory) const {
    return driver(directory, first_end_, {"every=1", "keep=2", "wait"});
  }
  static bool claimed(const path& directory, AttemptNumber attempt) {
    return exists(directory / kAttemptsDirectory / claim_name(attempt));
  }

  // A first process that stands at its N-th call.
  struct Held {
    TemporaryFolder folder;
    path directory;
    std::unique_ptr<SyscallTracer> life;
  };
  std::unique_ptr<Held> held(std::size_t number, Moment moment) const;
  void count();
  void hold_at(std::size_t number, Moment moment);
  void hold_beside(std::size_t number, Moment moment);
  void outlive_second(std::size_t number, std::size_t second_number, Moment second_moment);
  bool stop_at_random(unsigned seed);
  void second_wins(const path& directory, std::int64_t acknowledged) const;
  void expect_superseded(const Ended& ended, std::int64_t acknowledged) const;

  static constexpr std::int64_t kEnd = 8;  // of every process after the first
  static inline Counts counts;
  TemporaryFolder past_;
  AttemptNumber first_attempt_ = 1;
  std::int64_t first_end_ = 4;
  std::string straight_;
  std::vector<ChangingCall> calls_;  // of a first process alone
  std::size_t claim_ = 0;            // which of them is its claim, from 1
};

void ZombieProcesses::count() {
  const TemporaryFolder folder;
  const path directory = prepare(folder);
  SyscallTracer life(first(directory), quiet(), directory);
  const Ended ended = life.wait();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  calls_ = life.calls();
  const std::string claim = directory / kAttemptsDirectory / claim_name(first_attempt_);
  while (claim_ < calls_.size() && calls_[claim_].path != std::filesystem::weakly_canonical(claim)) ++claim_;
  ASSERT_LT(claim_++, calls_.size()) << "it never claimed " << claim;
}

// Starts where the first one's acknowledgements left off at the latest, and completes.
void ZombieProcesses::second_wins(const path& directory, std::int64_t acknowledged) const {
  const Ended ended = drive(directory, kEnd, {"every=2", "keep=2", "wait"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_GE(last_step(ended.out, "started"), acknowledged);
  EXPECT_EQ(state_in(ended.last_line()), straight_);
}

void ZombieProcesses::expect_superseded(const Ended& ended, std::int64_t acknowledged) const {
  EXPECT_EQ(ended.exit_code, kSuperseded) << ended.out << ended.err;
  EXPECT_EQ(last_step(ended.out, "acknowledged"), acknowledged) << "acknowledged after it was superseded";
}

// Two losses that reach the ledger together are one line's calls fewer: a life that was over before is tried
// again.
std::unique_ptr<ZombieProcesses::Held> ZombieProcesses::held(std::size_t number, Moment moment) const {
  for (int i = 0; i < 10; ++i) {
    auto one = std::make_unique<Held>();
    one->directory = prepare(one->folder);
    one->life = std::make_unique<SyscallTracer>(first(one->directory), quiet(), one->directory);
    if (!one->life->run_to(number, moment)) continue;
    one->life->hold();
    return one;
  }
  return nullptr;
}

void ZombieProcesses::hold_at(std::size_t number, Moment moment) {
  SCOPED_TRACE(std::string("held ") + name_of(moment) + " call " + std::to_string(number) + ", " +
               calls_[number - 1].text());
  const auto one = held(number, moment);
  ASSERT_TRUE(one);
  const path& directory = one->directory;
  SyscallTracer& zombie = *one->life;
  ++counts.held;
  const bool had_claimed = claimed(directory, first_attempt_);
  const bool was_complete = says_complete(directory, first_attempt_);
  EXPECT_EQ(had_claimed, number > claim_ || (number == claim_ && moment == Moment::after));
  const std::int64_t acknowledged = acknowledged_by(zombie.calls());

  second_wins(directory, acknowledged);
  const Listing before = listing(directory);
  const Ended ended = zombie.wait();
  const Listing after = listing(directory);
  if (!had_claimed) {
    // It comes to its claim as the newest, and finds the other's history.
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_EQ(state_in(ended.last_line()), straight_);
  } else if (was_complete) {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  } else {
    expect_superseded(ended, acknowledged);
    ++counts.superseded;
  }
  // One look lies before each call: a damaged file of its past may still be moved by the call that it stood
  // at.
  Listing expected = before;
  const auto damaged = parse_damaged_name(path(calls_[number - 1].to).filename().native());
  if (damaged && moment == Moment::before) {
    const auto moved = expected.extract(checkpoint_name(*damaged));
    if (moved) expected[damaged_name(*damaged)] = moved.mapped();
  }
  for (const std::string& what : touched(expected, after, first_attempt_)) {
    const bool checkpoint = parse_checkpoint_name(what.substr(0, what.find(' '))).has_value();
    if (had_claimed || checkpoint) ADD_FAILURE() << what;
  }
  const RunState state = believed(directory);
  EXPECT_EQ(state.attempt, first_attempt_ + 1);
  EXPECT_EQ(state.phase, RunPhase::complete);
  EXPECT_EQ(state.durable_step, kEnd);
}

void ZombieProcesses::hold_beside(std::size_t number, Moment moment) {
  SCOPED_TRACE(std::string("held ") + name_of(moment) + " call " + std::to_string(number));
  const auto one = held(number, moment);
  ASSERT_TRUE(one);
  const path& directory = one->directory;
  SyscallTracer& zombie = *one->life;
  if (says_complete(directory, first_attempt_)) {
    ++counts.left_out;
    return;
  }
  const std::int64_t acknowledged = acknowledged_by(zombie.calls());
  Subprocess second(driver(directory, kEnd, {"every=1", "wait", "pace-us=2000"}), quiet());
  EXPECT_TRUE(second.wait_until([&] { return last_step(second.out(), "acknowledged") >= 0; }));
  expect_superseded(zombie.wait(), acknowledged);
  const Ended ended = second.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_GE(last_step(ended.out, "started"), acknowledged);
  EXPECT_EQ(state_in(ended.last_line()), straight_);
  EXPECT_EQ(believed(directory).attempt, first_attempt_ + 1);
  ++counts.alive;
}

// A second process is killed on its way to its first commit; the first goes on, and a third comes.
void ZombieProcesses::outlive_second(std::size_t number, std::size_t second_number, Moment second_moment) {
  SCOPED_TRACE("held before call " + std::to_string(number) + ", the second killed " +
               name_of(second_moment) + " call " + std::to_string(second_number));
  const auto one = held(number, Moment::before);
  ASSERT_TRUE(one);
  const path& directory = one->directory;
  SyscallTracer& zombie = *one->life;
  const std::int64_t acknowledged = acknowledged_by(zombie.calls());
  const std::string file =
      checkpoint_name({.attempt = first_attempt_, .step = std::max<std::int64_t>(acknowledged, 0)});
  const std::string content = read_text(directory / file);

  SyscallTracer second(driver(directory, kEnd, {"every=1", "wait"}), quiet(), directory);
  ASSERT_TRUE(second.run_to(second_number, second_moment));
  EXPECT_EQ(last_step(second.kill().out, "acknowledged"), -1);
  const bool second_claimed = claimed(directory, first_attempt_ + 1);

  const Ended ended = zombie.wait();
  if (second_claimed) {
    expect_superseded(ended, acknowledged);
    if (acknowledged >= 0) {
      EXPECT_TRUE(read_text(directory / file) == content) << file << " was acknowledged";
    }
  } else {
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  second_wins(directory, last_step(ended.out, "acknowledged"));
  ++counts.died;
}

// Whether the signal came while the first process had a claim and was not done.
bool ZombieProcesses::stop_at_random(unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const TemporaryFolder folder;
  const path directory = folder.path() / "run";
  std::mt19937 random(seed);
  Subprocess zombie(driver(directory, 40, {"every=1", "keep=2", "wait"}), quiet());
  zombie.wait_until([&] { return claimed(directory, 1); });
  std::this_thread::sleep_for(
      std::chrono::microseconds(std::uniform_int_distribution<int>(0, 100'000)(random)));
  zombie.send(SIGSTOP);
  // A signal is not at once: every thread has to come to a stop.
  const std::string process = "/proc/" + std::to_string(zombie.pid());
  const auto all_stand = [&] {
    std::error_code gone;
    for (const auto& thread : std::filesystem::directory_iterator(process + "/task", gone)) {
      const std::string status = read_text(thread.path() / "stat");
      if (status.find(") T ") == std::string::npos) return false;
    }
    return true;
  };
  zombie.wait_until(all_stand);
  if (says_complete(directory, 1) || !zombie.running()) return false;
  const std::int64_t end = 60;
  const Ended second = drive(directory, end, {"every=20", "wait"});
  EXPECT_EQ(second.exit_code, 0) << second.err;
  const Listing before = listing(directory);
  zombie.send(SIGCONT);
  const Ended ended = zombie.wait();
  EXPECT_EQ(ended.exit_code, kSuperseded) << ended.err;
  // It may have acknowledged a step before it stopped, and say so only now.
  EXPECT_LE(last_step(ended.out, "acknowledged"), last_step(second.out, "started"));
  for (const std::string& what : touched(before, listing(directory), 1)) ADD_FAILURE() << what;
  EXPECT_EQ(believed(directory).attempt, 2U);
  EXPECT_EQ(state_in(second.last_line()), straight_);
  ++counts.stops;
  return true;
}

TEST_F(ZombieProcesses, HeldAtEveryCallOfAFirstRun) {
  ASSERT_NO_FATAL_FAILURE(count());
  const int before = counts.held;
  const std::vector<CallPoint> points = points_of(calls_);
  in_parallel(points.size(), [&](std::size_t i) {
    if (!HasFailure()) hold_at(points[i].number, points[i].moment);
  });
  EXPECT_EQ(counts.held - before, points.size()) << "points were planned";
}

TEST_F(ZombieProcesses, HeldAtEveryCallOfARecovery) {
  ASSERT_NO_FATAL_FAILURE(make_past());
  ASSERT_NO_FATAL_FAILURE(count());
  const int before = counts.held;
  const std::vector<CallPoint> points = points_of(calls_);
  in_parallel(points.size(), [&](std::size_t i) {
    if (!HasFailure()) hold_at(points[i].number, points[i].moment);
  });
  EXPECT_EQ(counts.held - before, points.size()) << "points were planned";
}

TEST_F(ZombieProcesses, GoesOnBesideTheSecond) {
  ASSERT_NO_FATAL_FAILURE(count());
  const std::size_t stride = nightly() ? 1 : 5;  // odd: both moments
  const std::size_t planned = (calls_.size() - claim_) / stride;
  in_parallel(planned, [&](std::size_t i) {
    if (!HasFailure()) hold_beside(claim_ + 1 + i * stride, i % 2 == 0 ? Moment::before : Moment::after);
  });
  EXPECT_EQ(counts.alive + counts.left_out, planned) << "points were planned";
  EXPECT_GT(counts.alive, 10);
}

TEST_F(ZombieProcesses, OutlivesASecondThatDies) {
  ASSERT_NO_FATAL_FAILURE(count());
  // Inside the claim, the second save's write, its rename, its state, and the retention after the third.
  std::vector<std::size_t> places = {claim_ + 1};
  const auto first_of = [&](const std::string& name, const std::string& file) {
    const auto found = std::find_if(calls_.begin(), calls_.end(), [&](const ChangingCall& call) {
      return call.name.starts_with(name) && path(call.path).filename().native().starts_with(file);
    });
    EXPECT_NE(found, calls_.end()) << name << " " << file;
    places.push_back(1 + static_cast<std::size_t>(found - calls_.begin()));
  };
  first_of("pwrite", "tmp-a0001-step-2");
  first_of("rename", "tmp-a0001-step-2");
  first_of("fsync", "tmp-a0001-step-3");
  first_of("unlink", "step-");
  if (HasFailure()) return;

  // How far the second gets: to the rename of its first commit.
  std::size_t calls = 0;
  {
    const TemporaryFolder folder;
    const path directory = folder.path() / "run";
    SyscallTracer life(first(directory), quiet(), directory);
    ASSERT_TRUE(life.run_to(places[2], Moment::before));
    life.hold();
    SyscallTracer second(driver(directory, kEnd, {"every=1", "wait"}), quiet(), directory);
    ASSERT_TRUE(
        second.run_to([](const ChangingCall& call) { return call.to.ends_with(".h5"); }, Moment::before));
    calls = second.calls().size();
  }
  std::vector<std::pair<std::size_t, std::size_t>> plan;  // place, point of the second
  for (std::size_t i = 0; i < 2 * calls; i += nightly() ? 1 : 3) {
    for (std::size_t place = 0; place < places.size(); ++place) {
      if (nightly() || i % places.size() == place) plan.emplace_back(places[place], i);
    }
  }
  in_parallel(plan.size(), [&](std::size_t i) {
    const auto [place, point] = plan[i];
    if (!HasFailure()) outlive_second(place, 1 + point / 2, point % 2 == 0 ? Moment::before : Moment::after);
  });
  EXPECT_EQ(counts.died, plan.size()) << "points were planned";
}

TEST_F(ZombieProcesses, StoppedBySignalAtRandomMoments) {
  straight_ = straight_state(60);
  const int wanted = nightly() ? 500 : 12;
  std::atomic<unsigned> seed{1};
  in_parallel(2, [&](std::size_t) {
    while (counts.stops < wanted && seed < 20U * static_cast<unsigned>(wanted) && !HasFailure()) {
      stop_at_random(seed++);
    }
  });
  EXPECT_GE(counts.stops, wanted);
}

}}  // namespace holdfast::test
