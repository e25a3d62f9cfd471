// One checkpoint file written by several ranks, compared with one rank: format/shares.h. The ranks are threads,
// each with an image of what it stages, and messages go through memory. So the comparison is about disk,
// hashing and the store's commit. Two ranks write as fast as the disk takes it; four write at 100 MB/s each,
// as clients of a network file system do.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/ranks/shared_write.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

constexpr int kLimitedRanks = 4;
constexpr double kLimit = 100;  // MB/s a rank

// Texts between ranks that are threads.
class Letters {
 public:
  class Box final : public RankChannel {
   public:
    Box(Letters& letters, int rank, int ranks) : letters_(letters), rank_(rank), ranks_(ranks) {}
    int rank() const noexcept override { return rank_; }
    int world_size() const noexcept override { return ranks_; }
    Duration timeout() const noexcept override { return std::chrono::minutes(5); }
    void post(const Ballot&) override {}
    std::optional<Ballot> result(Duration) override { return std::nullopt; }
    [[noreturn]] void give_up(const std::string& what, Duration) override { throw Error(what); }
    void broadcast(std::span<std::byte>) override {}
    void tell(const std::string& name, std::string_view text) override {
      const std::lock_guard lock(letters_.mutex_);
      letters_.texts_[{rank_, name}] = text;
      ++letters_.told_;
      letters_.changed_.notify_all();
    }
    std::string hear(int rank, const std::string& name, Duration limit) override {
      std::unique_lock lock(letters_.mutex_);
      const std::pair key(rank, name);
      if (letters_.changed_.wait_for(lock, limit, [&] { return letters_.texts_.contains(key); })) {
        return letters_.texts_.at(key);
      }
      throw Error("rank " + std::to_string(rank) + " of this bench is silent");
    }
    void forget(const std::string& name) override {
      const std::lock_guard lock(letters_.mutex_);
      letters_.texts_.erase({rank_, name});
    }

   private:
    Letters& letters_;
    const int rank_;
    const int ranks_;
  };

  int told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, std::string>, std::string> texts_;
  int told_ = 0;
};

// A run directory with a store in it.
class Run {
 public:
  Run(std::shared_ptr<const FilePlan> plan, std::filesystem::path folder)
      : plan_(std::move(plan)), folder_(std::move(folder)) {
    StoreOptions options;
    options.directory = folder_;
    options.keep = KeepLast{2};
    store_.emplace(FileSystem::real(), Clock::real(), std::move(options), verifier_);
    store_->preflight();
    store_->claim();
    store_->recover();
  }

 protected:
  std::shared_ptr<Snapshot> empty_image() const {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->layout = plan_->layout;
    snapshot->arena = make_image(*plan_);
    return snapshot;
  }
  void set_step(Snapshot& snapshot) const {
    RunRecord record;
    record.attempt = store_->attempt();
    record.time = "2026-01-01T00:00:00Z";
    snapshot.step = step_;
    snapshot.attributes.set("step", step_);
    put_run_record(snapshot.attributes, record);
  }

  std::shared_ptr<const FilePlan> plan_;
  std::filesystem::path folder_;
  FileVerifier verifier_;
  std::optional<CheckpointStore> store_;
  std::int64_t step_ = 0;
};

// As a process alone writes.
class ByOne : public Run {
 public:
  // `limit` in MB/s; 0: none.
  ByOne(TrainingState& state, std::shared_ptr<const FilePlan> plan, std::filesystem::path folder,
        double limit)
      : Run(std::move(plan), std::move(folder)), snapshot_(empty_image()) {
    how_.write_limit = limit;
    state.source().copy(*snapshot_->layout, snapshot_->arena->bytes(), Part::all);
  }
  // Seconds, from staged images to the acknowledgement.
  double save() {
    ++step_;
    set_step(*snapshot_);
    const double begin = now();
    store_->commit(
        {.step = step_, .bytes = plan_->layout->length(), .ancestry = {}, .write = [&](File& file) {
           digests_ = write_image(file, *snapshot_, *plan_, how_);
         }});
    const double taken = now() - begin;
    store_->apply_retention();
    return taken;
  }
  const Snapshot& snapshot() const { return *snapshot_; }
  const std::vector<Digest>& digests() const { return digests_; }

 private:
  ImageWriterOptions how_;
  std::shared_ptr<Snapshot> snapshot_;
  std::vector<Digest> digests_;
};

class ByRanks : public Run {
 public:
  // `limit` in MB/s a rank; 0: none.
  ByRanks(int ranks, const Snapshot& whole, std::shared_ptr<const FilePlan> plan,
          std::filesystem::path folder, double limit)
      : Run(std::move(plan), std::move(folder)) {
    how_.check_finite = false;  // nobody looks for numbers that are not finite when one writes
    how_.how.write_limit = limit;
    const std::vector<TensorSpec>& tensors = plan_->layout->tensors();
    const std::vector<bool> all(static_cast<std::size_t>(ranks), true);
    save_ = {plan_, std::make_shared<const Shares>(divide(*plan_, {all, owners_by_name(tensors)}))};
    for (int rank = 0; rank < ranks; ++rank) {
      boxes_.push_back(std::make_unique<Letters::Box>(letters_, rank, ranks));
      writers_.push_back(std::make_unique<SharedWriter>(*boxes_.back(), store_->attempt()));
      snapshots_.push_back(empty_image());
      for (const ByteRange& range : share(rank).stages) {
        const auto from = whole.arena->bytes().subspan(range.begin, range.size());
        std::copy(from.begin(), from.end(),
                  snapshots_.back()->arena->bytes().begin() + static_cast<std::ptrdiff_t>(range.begin));
      }
    }
  }
  // Until all know.
  double save() {
    ++step_;
    for (const auto& snapshot : snapshots_) set_step(*snapshot);
    std::vector<SharedOutcome> outcomes(writers_.size());
    std::string failure;
    const double begin = now();
    std::vector<std::thread> others;
    for (std::size_t rank = 1; rank < writers_.size(); ++rank) {
      others.emplace_back([&, rank] {
        outcomes[rank] =
            writers_[rank]->take_part(FileSystem::real(), folder_, save_, *snapshots_[rank], how_);
      });
    }
    try {
      digests_ = writers_[0]->commit(*store_, save_, *snapshots_[0], {}, how_).digests;
    } catch (const std::exception& error) {
      failure = error.what();
    }
    for (std::thread& other : others) other.join();
    const double taken = now() - begin;
    if (!failure.empty()) throw Error(failure, ExitCode::io_failed);
    for (std::size_t rank = 1; rank < outcomes.size(); ++rank) {
      const SharedOutcome& outcome = outcomes[rank];
      if (outcome.kind != SharedOutcome::Kind::committed) throw Error(outcome.reason, ExitCode::io_failed);
    }
    store_->apply_retention();
    return taken;
  }
  const Share& share(int rank) const { return save_.shares->ranks[static_cast<std::size_t>(rank)]; }
  const std::vector<Digest>& digests() const { return digests_; }
  double messages() { return static_cast<double>(letters_.told()) / static_cast<double>(step_); }

 private:
  SharedWriteOptions how_;
  SharedSave save_;
  Letters letters_;
  std::vector<std::unique_ptr<Letters::Box>> boxes_;
  std::vector<std::unique_ptr<SharedWriter>> writers_;
  std::vector<std::shared_ptr<Snapshot>> snapshots_;
  std::vector<Digest> digests_;
};

struct Compared {
  std::vector<double> alone, together, quotients;
};

// Pairs, in both orders.
Compared compare(Bench& bench, const std::string& what, ByOne& one, ByRanks& ranks) {
  one.save();
  ranks.save();
  if (one.digests() != ranks.digests()) throw Error("several ranks did not write what one wrote");
  Compared found;
  for (int i = 0; i < bench.options.repetitions; ++i) {
    bench.progress(what, i, bench.options.repetitions);
    const auto measure = [&](auto& way, std::vector<double>& out) {
      settle(bench.scratch.path());
      out.push_back(way.save());
    };
    if (i % 2 == 0) measure(one, found.alone);
    measure(ranks, found.together);
    if (i % 2 != 0) measure(one, found.alone);
    found.quotients.push_back(found.together.back() / found.alone.back());
  }
  return found;
}

}  // namespace

void measure_shared(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 16 * state.bytes() + (16u << 20), "the shared part with " + spec.name);
  const auto plan = make_file_plan(state.source().describe());
  const auto folder = [&](const char* who) { return bench.scratch.path() / (who + ("-" + spec.name)); };
  ByOne one(state, plan, folder("shared-by-one"), 0);
  ByRanks two(2, one.snapshot(), plan, folder("shared-by-two"), 0);
  const Compared free = compare(bench, "shared, " + spec.name, one, two);
  ByOne limited_one(state, plan, folder("shared-by-one-limited"), kLimit);
  ByRanks four(kLimitedRanks, one.snapshot(), plan, folder("shared-by-four"), kLimit);
  const Compared limited = compare(bench, "shared at 100 MB/s a rank, " + spec.name, limited_one, four);
  const auto bytes = static_cast<double>(plan->layout->length());
  const double staged = static_cast<double>(std::max(two.share(0).staged, two.share(1).staged));
  const double share = staged / static_cast<double>(two.share(0).staged + two.share(1).staged);
  Section section{.part = "shared",
                  .state = spec.name,
                  .title = spec.name + ", " + state.words() + ": one file written by several ranks",
                  .rows = {}};
  const auto rate = [&](const std::vector<double>& times) {
    return milliseconds(median(times)) + ", " + per_second(bytes, median(times));
  };
  const auto add_pair = [&](const Row& one_writes, const Row& ranks_write, const Compared& times) {
    Row& alone = section.rows.emplace_back(one_writes);
    alone.value = median(times.alone);
    alone.text = rate(times.alone);
    alone.samples = times.alone;
    Row& together = section.rows.emplace_back(ranks_write);
    together.value = median(times.together);
    together.text = rate(times.together);
    together.of = "times as long";
    together.ratio = median(times.quotients);
    together.samples = times.together;
  };
  add_pair({.key = "shared.one", .what = "one rank writes"},
           {.key = "shared.two",
            .what = "two ranks write",
            .goal = Goal{Goal::Kind::at_most, 1.0},
            .note = "two threads a rank, from staged images until all know; the median of quotients"},
           free);
  add_pair({.key = "shared.limited_one", .what = "one rank writes, at 100 MB/s"},
           {.key = "shared.four",
            .what = "four ranks write, at 100 MB/s each",
            .goal = Goal{Goal::Kind::at_most, 0.35},
            .note = "as clients of a network file system; the median of quotients"},
           limited);
  section.rows.push_back({.key = "shared.staged",
                          .what = "staged by a rank, at most",
                          .value = share,
                          .text = megabytes(staged),
                          .of = "of the state",
                          .ratio = share,
                          .goal = Goal{Goal::Kind::at_most, 0.55}});
  section.rows.push_back({.key = "shared.messages",
                          .what = "messages of a save",
                          .value = two.messages(),
                          .text = fixed(two.messages(), 1) + " by two ranks",
                          .note = "rank 0 says that it begins and how it ended, every other rank reports"});
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
