// Rule 4 whatever the policies: random histories of attempts, rollbacks, NaN, rot, wrong clocks and random
// policies, judged by a model of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "holdfast/store/lineage.h"
#include "holdfast/store/retention_text.h"
#include "support/fault_file_system.h"
#include "support/nightly.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::int64_t below(std::int64_t limit) {
    return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(limit));
  }
  bool one_in(std::int64_t n) { return below(n) == 0; }

 private:
  std::mt19937_64 engine_;
};

Retention any_retention(Random& random) {
  std::optional<Retention> all;
  const auto add = [&](const Retention& one) { all = all ? *all | one : one; };
  if (!random.one_in(4)) add(KeepLast{static_cast<int>(2 + random.below(3))});
  if (random.one_in(2)) add(KeepEvery{1 + random.below(40)});
  if (random.one_in(2)) {
    add(KeepBest{random.one_in(4) ? "nothing" : "accuracy", static_cast<int>(1 + random.below(3)),
                 random.one_in(2) ? Better::higher : Better::lower});
  }
  if (random.one_in(2)) add(KeepNewer{std::chrono::hours(1 + random.below(100))});
  return all ? *all : Retention();
}

// One run directory and what is true of it.
class History {
 public:
  explicit History(std::uint64_t seed) : random_(seed), files_(disk_) {}

  void attempt() {
    // Only good files can be rolled back to.
    std::vector<FileId> good;
    for (const auto& [id, file] : held_) {
      if (!file.rotten) good.push_back(id);
    }
    StoreOptions options{.keep = any_retention(random_)};
    keep_ = to_text(options.keep);
    if (!good.empty() && random_.one_in(3)) {
      options.start.file = checkpoint_name(
          good[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(good.size())))]);
    } else if (good.empty()) {
      options.allow_fresh = true;
    }
    files_.set_hook({});
    Life life(files_, options);
    life.tells_time = !random_.one_in(5);
    life.clock.shift_wall(std::chrono::hours(24 * 365) * (random_.below(21) - 10));
    const Selection start = life.start();
    lineage_ = {.own = life.store.attempt(), .ancestry = life.ancestry};
    trusted_.clear();
    acknowledged_.reset();
    if (start.newest) trusted_.insert({start.newest->attempt, start.newest->step});
    files_.set_hook([this](const Operation& operation) {
      if (operation.kind == Op::unlink) judge(operation.path);
    });

    const std::int64_t saves = 1 + random_.below(7);
    for (std::int64_t i = 0; i < saves; ++i) {
      const std::int64_t step = life.step + 1 + random_.below(15);
      if (random_.one_in(2)) {
        life.metrics["accuracy"][life.step] = random_.one_in(5) ? std::numeric_limits<double>::quiet_NaN()
                                                                : static_cast<double>(random_.below(100));
      }
      const bool finite = !random_.one_in(3);
      const CheckpointInfo saved = life.save(step, finite);
      const FileId id{.attempt = saved.attempt, .step = saved.step};
      held_[id] = {.finite = finite};
      trusted_.insert(id);
      acknowledged_ = id;
      life.clock.advance(std::chrono::hours(random_.below(30)));
      if (random_.one_in(6)) life.clock.shift_wall(std::chrono::hours(24) * (random_.below(7300) - 3650));
      if (!random_.one_in(4)) life.store.apply_retention();
    }
    files_.set_hook({});
    rot_one();
  }
  std::int64_t deleted() const { return deleted_; }

 private:
  struct Held {
    bool finite = true;
    bool rotten = false;
  };

  void judge(const std::string& path) {
    const auto id = parse_checkpoint_name(std::filesystem::path(path).filename().native());
    if (!id) return;
    ++deleted_;
    const std::string what = path + " with " + keep_;
    EXPECT_TRUE(lineage_.contains(*id)) << "of another lineage: " << what;
    ASSERT_TRUE(acknowledged_.has_value()) << "before an acknowledgement: " << what;
    EXPECT_LT(*id, *acknowledged_) << "not older than the newest acknowledged: " << what;
    const bool was_newest_finite = newest_finite() == *id;
    EXPECT_FALSE(was_newest_finite) << "the newest finite: " << what;
    held_.erase(*id);
    trusted_.erase(*id);
    EXPECT_GE(trusted_.size(), 2u) << "fewer than two written or verified are left: " << what;
  }
  std::optional<FileId> newest_finite() const {
    for (auto file = held_.rbegin(); file != held_.rend(); ++file) {
      if (lineage_.contains(file->first) && file->second.finite && !file->second.rotten) return file->first;
    }
    return std::nullopt;
  }
  void rot_one() {
    if (held_.empty() || !random_.one_in(3)) return;
    auto file = std::next(held_.begin(), random_.below(static_cast<std::int64_t>(held_.size())));
    if (std::exchange(file->second.rotten, true)) return;
    // Where recovery moves it aside it is held under another name.
    disk_.flip_bit(in_run(checkpoint_name(file->first)), random_.one_in(2) ? 10 : kToyBlock + 77);
  }

  Random random_;
  MemoryFileSystem disk_;
  FaultFileSystem files_;
  std::map<FileId, Held> held_;
  std::string keep_;
  Lineage lineage_;
  std::set<FileId> trusted_;
  std::optional<FileId> acknowledged_;
  std::int64_t deleted_ = 0;
};

TEST(RetentionHistories, NoPolicyEverBreaksRule4) {
  const int histories = (nightly() ? 20'000 : 400) / kStride;
  std::int64_t deleted = 0;
  for (int seed = 1; seed <= histories; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    History history(static_cast<std::uint64_t>(seed));
    testing::internal::CaptureStderr();
    for (int i = 0; i < 6; ++i) history.attempt();
    testing::internal::GetCapturedStderr();
    deleted += history.deleted();
    if (HasFailure()) break;
  }
  std::printf("retention: %d random histories, %lld deletions judged\n", histories,
              static_cast<long long>(deleted));
  EXPECT_GT(deleted, 3 * histories);
}

}}  // namespace holdfast::test
