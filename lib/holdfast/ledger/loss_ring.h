// Carries the loss of every step to the attempt's ledger, without a lock, an allocation or a system call on
// the training thread. The writer's thread empties the fixed ring about once a second. Best effort: if the
// ring is full (16,384 steps without a drain), new losses are dropped.
//
// One ledger line holds consecutive steps, with the bits of each loss as 16 hex digits:
//   {"event":"losses","from":1235,"bits":"3fb999999999999a3fb9999999999999"}
//
// Threads: push() on the training thread, drain() on the writer's; both may run at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class LossRing {
 public:
  static constexpr std::size_t kCapacity = 16384;  // 256 KiB

  // A NaN is left out, because a NaN equals nothing that it could be compared with.
  void push(std::int64_t step, double loss) noexcept;
  // The newest loss that was pushed, NaN included; nullopt before the first. Any thread.
  std::optional<double> newest() const noexcept;
  // Passes everything that was pushed since the last call to `write`, as ledger lines. If `write` throws, the
  // exception passes, and its line comes again.
  void drain(const std::function<void(const std::string& line)>& write);

 private:
  struct Entry {
    std::int64_t step;
    double loss;
  };
  std::array<Entry, kCapacity> entries_;
  std::atomic<double> newest_{0};
  std::atomic<bool> any_{false};
  alignas(64) std::atomic<std::uint64_t> written_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

// Loss bits by step, from the lines of one attempt's ledger. Other lines are ignored. If a step appears twice
// the first value counts.
std::map<std::int64_t, double> losses_in(const std::vector<std::string>& ledger_lines);

}}  // namespace holdfast::v0_2
