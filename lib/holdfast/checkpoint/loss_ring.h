// The loss of every step on its way to the attempt's ledger, without a lock, an allocation or a system call
// on the training thread: a fixed ring that the writer thread empties about once a second. Best effort: when
// the ring is full (the writer was away for 16,384 steps) the newest are dropped.
//
// In the ledger, a run of consecutive steps is one line: the bits of each loss as 16 hex digits, one after
// the other:  {"event":"losses","from":1235,"bits":"3fb999999999999a3fb9999999999999"}
//
// Threads: push on the training thread, drain on the writer's; the two at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::inline v1 {

class LossRing {
 public:
  static constexpr std::size_t kCapacity = 16384;  // 256 KiB

  // A loss that is NaN is left out: it was not told, or there is nothing to compare.
  void push(std::int64_t step, double loss) noexcept;
  // Everything pushed so far as ledger lines; empty when there is nothing new.
  std::vector<std::string> drain();

 private:
  struct Entry {
    std::int64_t step;
    double loss;
  };
  std::array<Entry, kCapacity> entries_;
  alignas(64) std::atomic<std::uint64_t> written_{0};
  alignas(64) std::atomic<std::uint64_t> read_{0};
};

// Loss bits by step, as the lines of one attempt's ledger record them. Other lines are passed over; of a step
// recorded twice the first counts.
std::map<std::int64_t, double> losses_in(const std::vector<std::string>& ledger_lines);

}  // namespace holdfast::inline v1
