// Ranks as threads that write one checkpoint file together: messages in memory that tests can lose and
// change, a shared disk with faults for each rank, and the file that one process alone would write.
//
// Threads: one thread uses SharedWorld; it starts and joins the threads of the ranks.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/format/seal.h"
#include "holdfast/ranks/shared_write.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"
#include "support/tensor_digests.h"

namespace holdfast::test {

// Texts between ranks.
class SharedMail {
 public:
  explicit SharedMail(int ranks) {
    for (int r = 0; r < ranks; ++r) members_.push_back(std::make_unique<Member>(*this, r));
  }
  RankChannel& of(int rank) { return *members_[static_cast<std::size_t>(rank)]; }

  // Replaces a text, or drops it. Set it before the ranks run.
  using Change =
      std::function<std::optional<std::string>(int rank, const std::string& name, std::string text)>;
  void set_change(Change change) { change_ = std::move(change); }
  int told(int rank) const {
    const std::lock_guard lock(mutex_);
    const auto found = told_.find(rank);
    return found == told_.end() ? 0 : found->second;
  }
  std::size_t kept() const {
    const std::lock_guard lock(mutex_);
    return texts_.size();
  }

 private:
  class Member final : public RankChannel {
   public:
    Member(SharedMail& mail, int rank) : mail_(mail), rank_(rank) {}
    int rank() const noexcept override { return rank_; }
    int world_size() const noexcept override { return static_cast<int>(mail_.members_.size()); }
    Duration timeout() const noexcept override { return std::chrono::seconds(30); }
    void post(const Ballot& /*mine*/) override {}
    std::optional<Ballot> result(Duration /*limit*/) override { return std::nullopt; }
    [[noreturn]] void give_up(const std::string& what, Duration /*waited*/) override { throw Error(what); }
    void broadcast(std::span<std::byte> /*bytes*/) override {}

    void tell(const std::string& name, std::string_view text) override {
      std::optional<std::string> sent(text);
      if (mail_.change_) sent = mail_.change_(rank_, name, std::string(text));
      const std::lock_guard lock(mail_.mutex_);
      ++mail_.told_[rank_];
      if (sent) mail_.texts_[{rank_, name}] = *std::move(sent);
      mail_.changed_.notify_all();
    }
    std::string hear(int rank, const std::string& name, Duration limit) override {
      std::unique_lock lock(mail_.mutex_);
      const std::pair key(rank, name);
      if (!mail_.changed_.wait_for(lock, limit, [&] { return mail_.texts_.contains(key); })) {
        throw Error("rank " + std::to_string(rank) + " is silent", ExitCode::interrupted);
      }
      return mail_.texts_.at(key);
    }
    void forget(const std::string& name) override {
      const std::lock_guard lock(mail_.mutex_);
      mail_.texts_.erase({rank_, name});
    }

   private:
    SharedMail& mail_;
    const int rank_;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Change change_;
  std::map<std::pair<int, std::string>, std::string> texts_;
  std::map<int, int> told_;
  std::vector<std::unique_ptr<Member>> members_;
};

inline constexpr char kSharedRun[] = "/vol/run";

// Small enough for a hundred writes, with shared blocks at every edge and the ranks' random streams in
// between.
inline std::vector<TensorSpec> shared_tensors(int ranks, std::int64_t large = 30000) {
  std::vector<TensorSpec> tensors;
  for (const std::string group : {"model", "optimizer/momentum"}) {
    for (int layer = 0; layer < 3; ++layer) {
      const std::string name = group + "/layer" + std::to_string(layer);
      tensors.push_back({name + ".weight", DType::float32, {large + layer}});
      tensors.push_back({name + ".bias", DType::float32, {33}});
    }
  }
  tensors.push_back({"model/empty", DType::float32, {0, 3}});
  tensors.push_back({"rng/cpu", DType::uint8, {1001}});
  for (int r = 1; r < ranks; ++r) {
    tensors.push_back({"rank/" + std::to_string(r) + "/rng/cpu", DType::uint8, {1001}});
  }
  return tensors;
}

inline std::vector<int> shared_owners(const std::vector<TensorSpec>& tensors) {
  std::vector<int> owners = owners_by_name(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name == "rng/cpu") owners[i] = 0;
  }
  return owners;
}

// One attempt of a run with several ranks.
class SharedWorld {
 public:
  struct Setting {
    std::vector<bool> sees = {true, true, true};
    std::vector<TensorSpec> tensors = {};  // shared_tensors()
    std::vector<int> owners = {};          // shared_owners()
    StoreOptions store = {};
    Duration limit = std::chrono::seconds(60);
    std::string run = kSharedRun;
  };

  SharedWorld(FileSystem& disk, const Setting& setting)
      : mail(static_cast<int>(setting.sees.size())), run_(setting.run) {
    const int ranks = world_size(setting);
    auto tensors = setting.tensors.empty() ? shared_tensors(ranks) : setting.tensors;
    auto owners = setting.owners.empty() ? shared_owners(tensors) : setting.owners;
    save_.plan = make_file_plan(std::move(tensors), 4096);
    save_.shares = std::make_shared<const Shares>(divide(*save_.plan, {setting.sees, std::move(owners)}));
    options.check_finite = true;
    options.begin_within = options.reports_within = options.end_within = setting.limit;
    for (int r = 0; r < ranks; ++r) {
      faults.push_back(std::make_unique<FaultFileSystem>(disk));
      saves_of_.push_back(save_);
    }
    StoreOptions store_options = setting.store;
    store_options.directory = run_;
    store.emplace(*faults[0], Clock::real(), store_options, verifier_);
    store->preflight();
    store->claim();
    const Selection found = store->recover();
    if (found.newest) {
      ancestry_ = found.newest->ancestry;
      ancestry_[found.newest->attempt] = found.newest->step;
    }
    for (int r = 0; r < ranks; ++r) {
      writers_.push_back(std::make_unique<SharedWriter>(mail.of(r), store->attempt(), clock_));
    }
  }

  int ranks() const { return static_cast<int>(faults.size()); }
  const Shares& shares() const { return *save_.shares; }
  const FilePlan& plan() const { return *save_.plan; }
  FakeClock& clock() { return clock_; }
  SharedWriter& writer(int rank) { return *writers_[static_cast<std::size_t>(rank)]; }
  // Makes that rank plan another file.
  void plan_otherwise(int rank, SharedSave save) {
    saves_of_[static_cast<std::size_t>(rank)] = std::move(save);
  }

  Attributes attributes(std::int64_t step) const {
    Attributes made;
    made.set("step", step);
    RunRecord record;
    record.attempt = store->attempt();
    record.ancestry = ancestry_;
    record.time = "2026-01-01T00:00:00Z";
    put_run_record(made, record);
    return made;
  }
  // The whole state at that step, with finite numbers.
  std::shared_ptr<Snapshot> whole(std::int64_t step) const {
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->layout = save_.plan->layout;
    snapshot->arena = make_image(*save_.plan);
    snapshot->step = step;
    snapshot->attributes = attributes(step);
    for (std::size_t i = 0; i < snapshot->layout->tensors().size(); ++i) {
      auto bytes = snapshot->layout->slot(i, snapshot->arena->bytes());
      for (std::size_t b = 0; b < bytes.size(); ++b) {
        bytes[b] = std::byte((b * 7 + i * 13 + static_cast<std::size_t>(step) * 31 + (b >> 9)) & 0x3f);
      }
    }
    return snapshot;
  }
  // The part of the state that the rank stages, and nothing else.
  std::shared_ptr<Snapshot> staged(int rank, const Snapshot& all) const {
    auto snapshot = std::make_shared<Snapshot>(all);
    snapshot->arena = make_image(*save_.plan);
    for (const ByteRange& range : save_.shares->ranks[static_cast<std::size_t>(rank)].stages) {
      const auto from = all.arena->bytes().subspan(range.begin, range.size());
      std::copy(from.begin(), from.end(),
                snapshot->arena->bytes().begin() + static_cast<std::ptrdiff_t>(range.begin));
    }
    return snapshot;
  }
  // The file that one process writes of the same state.
  std::vector<std::byte> alone(const Snapshot& all) const {
    MemoryFileSystem other;
    Snapshot sealed = all;
    const auto file = other.open_file("/a", OpenMode::create_direct);
    write_image(*file, sealed, *save_.plan);
    return other.get("/a");
  }

  // One rank's part of the save, as its writer thread does it.
  SharedOutcome take_part(int rank, const Snapshot& all) {
    const auto snapshot = staged(rank, all);
    SharedWriteOptions how = options;
    if (rank != 0) return part_of(rank, *snapshot, how);
    how.how.before_seal = [](Snapshot& sealed, std::optional<std::size_t> not_finite) {
      sealed.attributes.set(kRunFinite, !not_finite, Role::record);
    };
    SharedOutcome outcome;
    try {
      SharedCommit done = writer(0).commit(*store, saves_of_[0], *snapshot, ancestry_, how);
      if (!done.digests.empty()) {
        EXPECT_EQ(done.digests, tensor_digests(all));
      }
      outcome.kind = SharedOutcome::Kind::committed;
      outcome.checkpoint = done.checkpoint.name;
      outcome.bytes = done.checkpoint.bytes;
    } catch (const SupersededError& error) {
      outcome.kind = SharedOutcome::Kind::superseded;
      outcome.reason = error.what();
    } catch (const std::exception& error) {
      outcome.kind = SharedOutcome::Kind::failed;
      outcome.reason = error.what();
    }
    return outcome;
  }
  // All ranks except `without` save together.
  std::vector<SharedOutcome> save(const Snapshot& all, const std::set<int>& without = {}) {
    std::vector<SharedOutcome> outcomes(faults.size());
    std::vector<std::thread> threads;
    for (int r = 0; r < ranks(); ++r) {
      if (without.contains(r)) continue;
      threads.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = take_part(r, all); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }
  std::vector<SharedOutcome> save(std::int64_t step) { return save(*whole(step)); }

  SharedMail mail;
  std::vector<std::unique_ptr<FaultFileSystem>> faults;  // by rank
  SharedWriteOptions options;
  std::optional<CheckpointStore> store;

 private:
  static int world_size(const Setting& setting) { return static_cast<int>(setting.sees.size()); }
  SharedOutcome part_of(int rank, const Snapshot& snapshot, const SharedWriteOptions& how) {
    const auto r = static_cast<std::size_t>(rank);
    return writer(rank).take_part(*faults[r], run_, saves_of_[r], snapshot, how);
  }

  std::string run_;
  SharedSave save_;
  std::vector<SharedSave> saves_of_;
  FileVerifier verifier_;
  FakeClock clock_;  // never sleeps; messages are waited for in real time
  Ancestry ancestry_;
  std::vector<std::unique_ptr<SharedWriter>> writers_;
};

// "good", or the reason why the bytes under that name are no checkpoint.
inline std::string judge_shared(const MemoryFileSystem& disk, const std::string& name) {
  MemoryFileSystem copy = disk.copy();
  const auto file = copy.open_file(std::string(kSharedRun) + "/" + name, OpenMode::read);
  if (!file) return "not there";
  const auto index = read_index(*file);
  if (const auto* rejection = std::get_if<Rejection>(&index)) return rejection->reason;
  const auto damage = verify_bytes(*file, std::get<CheckpointIndex>(index));
  return damage ? damage->reason : "good";
}

inline std::vector<std::string> shared_names(const MemoryFileSystem& disk, const std::string& prefix) {
  std::vector<std::string> found;
  for (const std::string& name : disk.names(kSharedRun)) {
    if (name.starts_with(prefix)) found.push_back(name);
  }
  return found;
}

}  // namespace holdfast::test
