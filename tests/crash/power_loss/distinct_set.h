// Counts distinct 64-bit hashes from several threads, in a table of fixed size. At 100 million the odds that
// two disks share a hash somewhere are 1 in 3,700.
//
// Threads: any.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

namespace holdfast::test::power_loss {

class DistinctSet {
 public:
  explicit DistinctSet(std::uint64_t expected) : slots_(std::bit_ceil(expected + expected / 3 + 1024)) {}

  // True the first time. Requires fewer than all slots taken.
  bool insert(std::uint64_t hash) {
    hash += hash == 0 ? 1 : 0;
    for (std::uint64_t at = hash * 0x9e3779b97f4a7c15;; ++at) {
      std::atomic<std::uint64_t>& slot = slots_[at & (slots_.size() - 1)];
      std::uint64_t found = slot.load(std::memory_order_relaxed);
      if (found == 0 && slot.compare_exchange_strong(found, hash, std::memory_order_relaxed)) return true;
      if (found == hash) return false;
    }
  }

 private:
  std::vector<std::atomic<std::uint64_t>> slots_;
};

}  // namespace holdfast::test::power_loss
