// Ranks as threads of one process: a RankChannel in memory.
//
// Threads: each rank's RankChannel as in rank_channel.h; lose() from any.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/ranks/rank_channel.h"

namespace holdfast::test {

class MemoryWorld {
 public:
  explicit MemoryWorld(int size) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(std::make_unique<Member>(*this, rank));
  }
  RankChannel& rank(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // That rank has ended: ranks that wait for it get an error.
  void lose(int rank) {
    const std::lock_guard lock(mutex_);
    lost_.insert(rank);
    changed_.notify_all();
  }
  int told(int rank) {  // number of texts up to now
    const std::lock_guard lock(mutex_);
    return told_[rank];
  }
  std::vector<std::int64_t> votes(int rank) {  // the steps of its ballots up to now
    const std::lock_guard lock(mutex_);
    return votes_[rank];
  }
  int looks(int rank) {  // for the result of a vote or for a text, up to now
    const std::lock_guard lock(mutex_);
    return looks_[rank];
  }
  std::uint64_t broadcast() {  // bytes
    const std::lock_guard lock(mutex_);
    std::uint64_t bytes = 0;
    for (const auto& [count, sent] : sent_) bytes += sent.bytes.size();
    return bytes;
  }
  int texts() {  // texts that were not forgotten
    const std::lock_guard lock(mutex_);
    return static_cast<int>(texts_.size());
  }

 private:
  struct Round {
    int voted = 0;
    Ballot largest{};
  };
  struct Sent {
    std::vector<std::byte> bytes;
    int received = 0;
  };

  class Member final : public RankChannel {
   public:
    Member(MemoryWorld& world, int rank) : world_(world), rank_(rank) {}
    int rank() const noexcept override { return rank_; }
    int world_size() const noexcept override { return world_.size(); }
    Duration timeout() const noexcept override { return world_.timeout; }

    void post(const Ballot& mine) override {
      const std::lock_guard lock(world_.mutex_);
      Round& round = world_.rounds_[round_];
      round.largest = round.voted++ == 0 ? mine : larger_of(round.largest, mine);
      world_.votes_[rank_].push_back(agreed_by(mine, world_.size()).step);
      world_.changed_.notify_all();
    }
    std::optional<Ballot> result(Duration limit) override {
      std::unique_lock lock(world_.mutex_);
      ++world_.looks_[rank_];
      Round& round = world_.rounds_[round_];
      const auto complete = [&] { return round.voted == world_.size(); };
      world_.changed_.wait_for(lock, limit, [&] { return complete() || !world_.lost_.empty(); });
      if (complete()) {
        ++round_;
        return round.largest;
      }
      world_.throw_if_lost();
      return std::nullopt;
    }
    [[noreturn]] void give_up(const std::string& what, Duration waited) override {
      throw Error("nobody came (" + what + ") in " + format_duration(waited), ExitCode::interrupted);
    }
    void tell(const std::string& name, std::string_view text) override {
      const std::lock_guard lock(world_.mutex_);
      world_.texts_[{rank_, name}] = world_.on_its_machine(rank_, text);
      ++world_.told_[rank_];
      world_.changed_.notify_all();
    }
    std::string hear(int rank, const std::string& name, Duration limit) override {
      std::unique_lock lock(world_.mutex_);
      ++world_.looks_[rank_];
      const std::pair key(rank, name);
      world_.changed_.wait_for(lock, limit,
                               [&] { return world_.texts_.contains(key) || world_.lost_.contains(rank); });
      if (world_.texts_.contains(key)) return world_.texts_.at(key);
      if (world_.lost_.contains(rank))
        throw Error("rank " + std::to_string(rank) + " is lost", ExitCode::interrupted);
      throw Error("rank " + std::to_string(rank) + " told no " + name, ExitCode::interrupted);
    }
    void forget(const std::string& name) override {
      const std::lock_guard lock(world_.mutex_);
      world_.texts_.erase({rank_, name});
    }
    void call(bool so) noexcept override { calls_ = so; }
    bool called() const noexcept override {
      return std::any_of(world_.ranks_.begin() + 1, world_.ranks_.end(),
                         [](const auto& other) { return other->calls_.load(); });
    }
    void broadcast(std::span<std::byte> bytes) override {
      std::unique_lock lock(world_.mutex_);
      Sent& sent = world_.sent_[sent_++];
      if (rank_ == 0) {
        sent.bytes.assign(bytes.begin(), bytes.end());
        sent.received = 1;
        world_.changed_.notify_all();
        return;
      }
      world_.changed_.wait(lock, [&] { return sent.received > 0 || !world_.lost_.empty(); });
      if (sent.received == 0) world_.throw_if_lost();
      std::memcpy(bytes.data(), sent.bytes.data(), bytes.size());
      if (world_.corrupt_for == rank_) bytes[bytes.size() / 2] ^= std::byte{1};
    }

   private:
    MemoryWorld& world_;
    const int rank_;
    int round_ = 0;
    int sent_ = 0;
    std::atomic<bool> calls_{false};
  };

  // All ranks are threads of this process. What such a rank tells of its host is true of another machine's.
  std::string on_its_machine(int rank, std::string_view text) const {
    const auto machine = machines.find(rank);
    if (machine == machines.end()) return std::string(text);
    auto json = nlohmann::json::parse(text, nullptr, false);
    if (!json.is_object() || !json.contains("host")) return std::string(text);
    json["host"] = machine->second;
    return json.dump();
  }
  // Requires the mutex.
  void throw_if_lost() const {
    if (!lost_.empty()) {
      throw Error("rank " + std::to_string(*lost_.begin()) + " is lost", ExitCode::interrupted);
    }
  }

 public:
  Duration timeout = std::chrono::seconds(60);  // set before the start
  int corrupt_for = -1;                         // a bit flips on the way to that rank; set before the start
  std::map<int, std::string> machines;          // by rank; without a name: rank 0's. Set before the start

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Round> rounds_;
  std::map<int, Sent> sent_;
  std::map<std::pair<int, std::string>, std::string> texts_;
  std::map<int, int> told_, looks_;
  std::map<int, std::vector<std::int64_t>> votes_;
  std::set<int> lost_;
  std::vector<std::unique_ptr<Member>> ranks_;
};

}  // namespace holdfast::test
