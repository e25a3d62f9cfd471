// Counts distinct 64-bit hashes from several threads, in a table of fixed size. At 100 million the odds that
// two disks share a hash somewhere are 1 in 3,700. Memory: 8 bytes a slot.
//
// Threads: any.
#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace holdfast::test::power_loss {

class DistinctSet {
 public:
  // Fast while a fifth of the slots is free; std::length_error when none is.
  explicit DistinctSet(std::uint64_t slots) : slots_(std::bit_ceil(slots)) {}

  // True the first time.
  bool insert(std::uint64_t hash) {
    hash += hash == 0 ? 1 : 0;
    const std::uint64_t home = hash * 0x9e3779b97f4a7c15;
    for (std::uint64_t probe = 0; probe < slots_.size(); ++probe) {
      std::atomic<std::uint64_t>& slot = slots_[(home + probe) & (slots_.size() - 1)];
      std::uint64_t found = slot.load(std::memory_order_relaxed);
      if (found == 0 && slot.compare_exchange_strong(found, hash, std::memory_order_relaxed)) return true;
      if (found == hash) return false;
    }
    throw std::length_error("more distinct states than slots for them");
  }

 private:
  std::vector<std::atomic<std::uint64_t>> slots_;
};

}  // namespace holdfast::test::power_loss
