// Power cuts on real file systems: ext4 and XFS on loop devices, shut down by the kernel's own call while a
// trainer saves as fast as it can. After each cut the volume is unmounted and mounted again (the log is
// recovered), the real recovery runs, and the same run goes on. What the trainer said was acknowledged must
// be there, every state it starts from must be that of the undisturbed run, and no start may be refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>

#include "crash/driver_run.h"
#include "holdfast/base/exit_code.h"
#include "support/fault_file_system.h"
#include "support/loop_volume.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr int kCuts = 48;  // of one run
constexpr std::int64_t kSteps = 3000;
constexpr char kElements[] = "elements=20000";

// The undisturbed run, step by step.
const std::map<std::int64_t, std::string>& straight_states() {
  static const std::map<std::int64_t, std::string> states = [] {
    std::map<std::int64_t, std::string> found;
    const TemporaryFolder folder;
    const Ended ended = drive(folder.path() / "run", kSteps, {kElements, "states"});
    for (const std::string& line : lines_of(ended.out)) {
      if (line.starts_with("stepped ") || line.starts_with("started ")) {
        found[last_step(line, line.substr(0, 7))] = state_in(line);
      }
    }
    return found;
  }();
  return states;
}

struct Plan {
  std::string driven;               // an option of the driver; empty: from outside
  std::chrono::microseconds delay;  // then: after the start of the process
  VolumeCut how = VolumeCut::at_once;
  bool buffered = false;
  bool lazy = false;  // and nothing is written back before its fsync
  std::string mount;  // options of the mount before it

  std::string text() const {
    return (driven.empty() ? "after " + std::to_string(delay.count()) + " us" : driven) +
           " how=" + std::to_string(static_cast<int>(how)) + (buffered ? " buffered" : "") +
           (lazy ? " lazy" : "") + " mount=\"" + mount + "\"";
  }
};

// Of twelve cuts, five sweep over the operations of a start and the saves after it, four fall where one
// more step decides (a file synced, renamed, its name synced: and the step is acknowledged), three come when
// they like.
Plan plan_of(int cut, VolumeKind kind, std::mt19937& random) {
  const auto any = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  Plan plan;
  switch (cut % 12) {
    case 1:
      plan.driven = "cut-after-fsync=" + std::to_string(any(1, 9));
      break;
    case 4:
    case 10:
      plan.driven = "cut-after-rename=" + std::to_string(any(1, 4));
      break;
    case 7:
      plan.driven = "cut-after-directory-fsync=" + std::to_string(any(1, 4));
      break;
    case 2:
    case 6:
    case 11:
      plan.delay = std::chrono::microseconds(any(0, 120'000));
      break;
    default:
      plan.driven = "cut-before=" + std::to_string(any(1, 110));
  }
  if (any(0, 7) == 0) plan.how = any(0, 1) == 0 ? VolumeCut::all_written : VolumeCut::log_written;
  plan.buffered = any(0, 2) == 0;
  plan.lazy = plan.buffered && cut % 3 != 0;
  static const std::vector<std::string> ext4 = {"", "data=writeback,noauto_da_alloc", "discard", "",
                                                "data=journal"};
  static const std::vector<std::string> xfs = {"", "discard", "", "logbsize=256k", "wsync"};
  const auto& mounts = kind == VolumeKind::ext4 ? ext4 : xfs;
  plan.mount = mounts.at(static_cast<std::size_t>(cut) % mounts.size());
  return plan;
}

struct Tally {
  int planned = 0;
  int fired = 0;
  int unflushed = 0;  // of them: with nothing written first, as a real cut
  int lost = 0;
  int stuck = 0;
  int silent = 0;
  std::vector<int> stuck_codes;      // what a process ended with that was stuck
  std::map<std::string, int> after;  // the operation that a driven cut followed
  std::string told;                  // of what went wrong

  void tell(int& kind, const std::string& what) {
    ++kind;
    if (told.size() < 4000) told += what + "\n";
  }
};

// One run over many cuts.
class Story {
 public:
  Story(VolumeKind kind, std::uint32_t seed, Tally& tally, std::string program = HOLDFAST_DRIVER)
      : kind_(kind), random_(seed), tally_(tally), program_(std::move(program)), volume_({.kind = kind}) {}

  void go() {
    for (int cut = 0; cut < kCuts && tally_.told.empty(); ++cut) {
      const Plan plan = plan_of(cut, kind_, random_);
      where_ = std::string(name_of(kind_)) + ", cut " + std::to_string(cut) + " (" + plan.text() + ")";
      volume_.unmount();
      volume_.mount(plan.mount);
      ++tally_.planned;
      live(plan);
    }
    volume_.unmount();
    volume_.mount();
    if (tally_.told.empty()) finish();
  }

 private:
  void live(const Plan& plan) {
    std::vector<std::string> more = {"every=1", "keep=2", "wait", "states", kElements};
    if (plan.buffered) more.emplace_back(plan.lazy ? "lazy" : "buffered");
    if (!plan.driven.empty()) {
      more.push_back(plan.driven);
      more.push_back("cut-how=" + std::to_string(static_cast<int>(plan.how)));
    }
    std::vector<std::string> command = driver(volume_.path() / "run", kSteps, more);
    command[0] = program_;
    Subprocess life(command, quiet());
    bool cut = false;
    if (plan.driven.empty()) {
      std::this_thread::sleep_for(plan.delay);
      cut = life.running();
      volume_.cut(plan.how);
    } else {
      cut = life.wait_until(
          [&] { return life.out().find("\ncut ") != std::string::npos || life.out().starts_with("cut "); });
    }
    // A moment in which it may say what is not true.
    std::this_thread::sleep_for(std::chrono::milliseconds(2 + tally_.planned % 7));
    life.send(SIGKILL);
    const Ended ended = life.wait();
    if (cut) {
      ++tally_.fired;
      tally_.unflushed += plan.how == VolumeCut::at_once ? 1 : 0;
      const auto at = ended.out.find(" after=");
      if (at != std::string::npos)
        ++tally_.after[ended.out.substr(at + 7, ended.out.find('\n', at) - at - 7)];
    } else {
      tally_.stuck_codes.push_back(ended.exit_code);
      tally_.tell(tally_.stuck, where_ + ": ended before the cut with " + std::to_string(ended.exit_code) +
                                    ", signal " + std::to_string(ended.signal) + "\n" + ended.err);
    }
    judge(ended);
  }

  void judge(const Ended& ended) {
    const std::int64_t started = last_step(ended.out, "started");
    if (started >= 0) {
      if (started < acknowledged_) {
        tally_.tell(tally_.lost, where_ + ": an earlier life acknowledged step " +
                                     std::to_string(acknowledged_) + ", " + cause_ + "; this one starts at " +
                                     std::to_string(started) + "\n" + ended.err);
      }
      const auto lines = lines_of(ended.out);
      const std::string line = *std::find_if(
          lines.begin(), lines.end(), [](const std::string& said) { return said.starts_with("started "); });
      const auto expected = straight_states().find(started);
      if (expected == straight_states().end() || state_in(line) != expected->second) {
        tally_.tell(tally_.silent, where_ + ": wrong state: " + line);
      }
    }
    acknowledged_ = std::max(acknowledged_, last_step(ended.out, "acknowledged"));
    cause_ = "and then came " + where_;
  }

  void finish() {
    where_ = std::string(name_of(kind_)) + ", at the end";
    const std::int64_t last = std::min(kSteps, std::max<std::int64_t>(acknowledged_, 0) + 10);
    const Ended ended =
        drive(volume_.path() / "run", last, {"every=1", "keep=2", "wait", "states", kElements});
    if (ended.exit_code != 0) {
      tally_.stuck_codes.push_back(ended.exit_code);
      tally_.tell(tally_.stuck, where_ + ": " + ended.err);
    }
    judge(ended);
    if (state_in(ended.last_line()) != straight_states().at(last)) {
      tally_.tell(tally_.silent, where_ + ": another state than the undisturbed run's: " + ended.last_line());
    }
  }

  const VolumeKind kind_;
  std::mt19937 random_;
  Tally& tally_;
  const std::string program_;
  LoopVolume volume_;
  std::int64_t acknowledged_ = -1;
  std::string where_;
  std::string cause_ = "(nothing)";
};

class RealKernels : public testing::TestWithParam<VolumeKind> {
 protected:
  static void TearDownTestSuite() {
    std::string line;
    Tally sum;
    for (const auto& [kind, tally] : tallies()) {
      line += (kind == VolumeKind::ext4 ? "ext4 " : "XFS ") + std::to_string(tally.fired) + " cuts, ";
      sum.lost += tally.lost;
      sum.stuck += tally.stuck;
      sum.silent += tally.silent;
    }
    if (line.empty()) return;
    std::printf("real kernels: %s%d lost, %d stuck, %d silent\n", line.c_str(), sum.lost, sum.stuck,
                sum.silent);
  }
  static std::map<VolumeKind, Tally>& tallies() {
    static std::map<VolumeKind, Tally> tallies;
    return tallies;
  }
};

TEST_P(RealKernels, NothingAcknowledgedIsLost) {
  const std::string why_not = LoopVolume::why_not(GetParam());
  if (!why_not.empty()) GTEST_SKIP() << name_of(GetParam()) << ": " << why_not;
  ASSERT_EQ(straight_states().size(), kSteps + 1);
  Tally& tally = tallies()[GetParam()];
  for (std::uint32_t round = 0; round < (nightly() ? 50U : 1U) && tally.told.empty(); ++round) {
    Story(GetParam(), 20260101 + round, tally).go();
  }
  EXPECT_EQ(tally.told, "");
  EXPECT_GE(tally.unflushed, 40);
  EXPECT_EQ(tally.fired, tally.planned);
  for (const Op operation : {Op::sync_file, Op::rename_new, Op::sync_directory}) {
    EXPECT_GE(tally.after[std::string(name_of(operation))], 3) << name_of(operation);
  }
}

// The proof itself: a trainer whose store leaves out one fsync is found out, by a step that is gone or by a
// start that it refuses. A program that does not run proves nothing.
TEST_P(RealKernels, WithoutAnFsyncTheyFindOut) {
  const std::string why_not = LoopVolume::why_not(GetParam());
  if (!why_not.empty()) GTEST_SKIP() << name_of(GetParam()) << ": " << why_not;
  for (const char* bug : {"no_fsync_of_the_file", "no_fsync_of_the_directory"}) {
    Tally tally;
    Story(GetParam(), 20260101, tally, std::string(HOLDFAST_PLANTED_DRIVERS) + bug).go();
    EXPECT_GT(tally.fired, 0) << bug << ": no power was cut\n" << tally.told;
    EXPECT_GT(tally.lost + tally.stuck, 0) << bug << " survived " << tally.fired << " cuts";
    for (const int code : tally.stuck_codes) {
      EXPECT_TRUE(code == static_cast<int>(ExitCode::refused) ||
                  code == static_cast<int>(ExitCode::io_failed))
          << bug << " ended with " << code << "\n"
          << tally.told;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Volumes, RealKernels, testing::Values(VolumeKind::ext4, VolumeKind::xfs),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}}  // namespace holdfast::test
