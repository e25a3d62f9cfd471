// One run for a long time on one small volume: lives that end by SIGKILL, SIGTERM and power cuts, disks that
// fill up and empty again, thousands of saves. Nothing acknowledged is lost, every start goes on by itself,
// and open files, memory and disk use stay flat.
//
// 20 s of it in tests/run, two hours with --nightly, HOLDFAST_SOAK_HOURS where that is set. Without root or
// loop devices there are no power cuts and no full disks.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "../../bench/shared/median.h"
#include "crash/driver_run.h"
#include "support/loop_volume.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr std::int64_t kForEver = 1'000'000'000;
constexpr char kElements[] = "elements=5000";

std::chrono::seconds duration_of_soak() {
  if (const char* const hours = std::getenv("HOLDFAST_SOAK_HOURS"); hours != nullptr) {
    return std::chrono::seconds(static_cast<std::int64_t>(std::strtod(hours, nullptr) * 3600));
  }
  return nightly() ? 2h : 20s;
}

struct Range {
  double least = 1e300;
  double greatest = 0;
  int samples = 0;
  void add(double value) {
    ++samples;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
};

constexpr double kMiB = 1 << 20;

double resident_mib(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stod(line.substr(6)) * 1024 / kMiB;
  }
  return 0;
}

int entries_of(const std::filesystem::path& folder) {
  std::error_code gone;
  int count = 0;
  for (std::filesystem::directory_iterator at(folder, gone), end; !gone && at != end; at.increment(gone))
    ++count;
  return count;
}

struct Use {
  double mib = 0;  // as allocated
  int files = 0;
};

Use use_of(const std::filesystem::path& folder) {
  Use use;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    struct stat status {};
    if (lstat(entry.path().c_str(), &status) != 0) continue;
    use.mib += static_cast<double>(status.st_blocks) * 512 / kMiB;
    ++use.files;
  }
  return use;
}

enum class End { killed, asked, cut };

class Soak : public testing::Test {
 protected:
  void SetUp() override {
    why_plain_ = LoopVolume::why_not(VolumeKind::ext4);
    if (why_plain_.empty()) {
      volume_ = std::make_unique<LoopVolume>(LoopVolumeOptions{.bytes = 32 << 20});
    } else {
      folder_ = std::make_unique<TemporaryFolder>();
    }
  }

  std::filesystem::path volume_path() const { return volume_ ? volume_->path() : folder_->path(); }
  std::filesystem::path run() const { return volume_path() / "run"; }
  int any(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }

  // A life that lasts about that long.
  void live(std::chrono::milliseconds length) {
    const End end = volume_ && any(0, 3) == 0 ? End::cut : any(0, 2) == 0 ? End::asked : End::killed;
    const bool fills = volume_ && !ballast_ && any(0, 4) == 0;
    const bool empties = any(0, 1) == 0;
    bool was_full = ballast_.has_value();
    std::vector<std::string> habits = {"every=1", "keep=2", "wait", "leashed", kElements};
    if (any(0, 1) == 0) habits.emplace_back("announced");
    Subprocess life(driver(run(), kForEver, habits), quiet());
    wait_for_start(life);
    std::this_thread::sleep_for(length / 3);
    const double early = resident_mib(life.pid());
    if (fills) {
      ballast_.emplace(volume_path(), static_cast<std::uint64_t>(any(0, 1) * any(0, 1 << 20)));
      was_full = true;
      ++full_disks_;
    }
    std::this_thread::sleep_for(length / 3);
    if (empties) ballast_.reset();
    std::this_thread::sleep_for(length / 3);
    sample(life, length > 2s ? early : 0);
    const bool over = !life.running();
    if (end == End::cut) {
      volume_->cut();
      ++cuts_;
    }
    life.send(end == End::asked ? SIGTERM : SIGKILL);
    judge(life.wait(), end, over, was_full);
    if (end == End::cut) {
      volume_->unmount();
      volume_->mount();
      // The cut may have taken its removal back.
      if (!ballast_) std::filesystem::remove(volume_path() / "ballast");
    }
    // It may outlast one life, and the next start finds it; not the one after that.
    if (!fills) ballast_.reset();
    note_use();
  }

  void wait_for_start(Subprocess& life) {
    const auto began = Steady::now();
    const bool started = life.wait_until([&] { return life.out().find("started ") != std::string::npos; });
    const std::chrono::duration<double, std::milli> took = Steady::now() - began;
    if (started) starts_.push_back(took.count());
  }

  void sample(Subprocess& life, double early) {
    if (!life.running()) return;
    const std::filesystem::path process = "/proc/" + std::to_string(life.pid());
    open_files_.add(entries_of(process / "fd"));
    const double now = resident_mib(life.pid());
    memory_.add(now);
    if (early > 0) growth_.add(now - early);
  }

  void judge(const Ended& ended, End end, bool over, bool was_full) {
    ++lives_;
    const std::int64_t started = last_step(ended.out, "started");
    if (started >= 0) {
      EXPECT_GE(started, acknowledged_) << "lost: " << ended.err;
    }
    const auto lines = lines_of(ended.out);
    saves_ += std::count_if(lines.begin(), lines.end(),
                            [](const std::string& line) { return line.starts_with("acknowledged "); });
    acknowledged_ = std::max(acknowledged_, last_step(ended.out, "acknowledged"));
    if (over) {
      // A full disk may refuse a start; nothing else may.
      EXPECT_TRUE(was_full && ended.exit_code == 74)
          << "needs a hand: " << ended.exit_code << " " << ended.err;
      ++refused_;
    } else if (end == End::asked) {
      EXPECT_TRUE(ended.exit_code == 75 || (was_full && ended.exit_code == 74))
          << ended.exit_code << " " << ended.err;
    }
  }

  void note_use() {
    const Use use = use_of(run());
    if (lives_ > 3) disk_.add(use.mib);
    files_ = std::max(files_, use.files);
  }

  void finish() {
    ballast_.reset();
    const std::int64_t last = std::max<std::int64_t>(acknowledged_, 0) + 10;
    const Ended ended = drive(run(), last, {"every=1", "keep=2", "wait", kElements});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_GE(last_step(ended.out, "started"), acknowledged_);
    EXPECT_EQ(state_in(ended.last_line()), straight_state(last, {kElements}));
  }

  double median_start(std::size_t from, std::size_t to) const {
    return bench::median({starts_.begin() + static_cast<std::ptrdiff_t>(from),
                          starts_.begin() + static_cast<std::ptrdiff_t>(to)});
  }

  std::string why_plain_;
  std::unique_ptr<LoopVolume> volume_;
  std::unique_ptr<TemporaryFolder> folder_;
  std::optional<Ballast> ballast_;
  std::mt19937 random_{20260101};
  std::int64_t acknowledged_ = -1;
  std::int64_t saves_ = 0;
  int lives_ = 0;
  int refused_ = 0;
  int full_disks_ = 0;
  int cuts_ = 0;
  int files_ = 0;
  Range open_files_;
  Range memory_;
  Range growth_;  // within lives of more than 2 s
  Range disk_;
  std::vector<double> starts_;
};

TEST_F(Soak, StaysFlatAndNeedsNoHand) {
  const auto length = duration_of_soak();
  const auto end = Steady::now() + length;
  const int one_in = length > 1min ? 60 : 15;
  while (Steady::now() < end && !HasFailure()) {
    const bool long_life = lives_ % one_in == one_in / 2;
    live(long_life ? (length > 1min ? 30'000ms : 4000ms) : std::chrono::milliseconds(any(20, 600)));
  }
  finish();
  const std::size_t some = std::min<std::size_t>(starts_.size() / 2, 50);
  std::printf(
      "soak: %d lives, %lld saves, %d full disks, %d starts refused on them, %d power cuts, open files "
      "%.0f..%.0f, RSS %.1f..%.1f MiB (%+.1f within a long life), disk %.1f..%.1f MiB in at most %d files, "
      "starts %.0f ms at first, %.0f ms at last%s\n",
      lives_, static_cast<long long>(saves_), full_disks_, refused_, cuts_, open_files_.least,
      open_files_.greatest, memory_.least, memory_.greatest, growth_.greatest, disk_.least, disk_.greatest,
      files_, median_start(0, some), median_start(starts_.size() - some, starts_.size()),
      why_plain_.empty() ? "" : (", without power cuts and full disks: " + why_plain_).c_str());
  EXPECT_GT(lives_, 5);
  EXPECT_GT(saves_, lives_);
  // A bound on what nobody looked at holds nothing.
  EXPECT_GT(open_files_.samples, 5);
  EXPECT_GT(growth_.samples, 0) << "no long life";
  EXPECT_GT(disk_.samples, 5);
  if (volume_) {
    EXPECT_GT(cuts_, 0);
    EXPECT_GT(full_disks_, 0);
  }
  EXPECT_LE(open_files_.greatest, open_files_.least + 8);
  EXPECT_LT(growth_.greatest, 6);
  // Two checkpoints, one being written, one that is about to go, two that were damaged, of 0.9 MiB each; the
  // small files of a hundred attempts and of a few more that have a checkpoint.
  EXPECT_LT(disk_.greatest, 16);
  EXPECT_LT(files_, 340);
}

}}  // namespace holdfast::test
