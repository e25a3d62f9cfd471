// A launch on CPU threads as a GPU may run it, for tests: blocks in any order, within a step the threads in any
// order, shared memory full of garbage at the start of a block. A kernel that lacks a barrier, or counts on zeros
// or on an order, computes something else. GuardedMemory ends where no access is allowed.
//
// Threads: one thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "holdfast/kernels/kernel.h"

namespace holdfast::test {

// `count` values that end at a page without access: one read or write behind them ends the program. Begins with
// garbage.
template <class T>
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (count * sizeof(T) + page - 1) / page * page;
    size_ = used + page;
    void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
    if (mprotect(memory_ + used, page, PROT_NONE) != 0) throw std::runtime_error("mprotect");
    values_ = reinterpret_cast<T*>(memory_ + used - count * sizeof(T));
    std::memset(memory_, 0xA5, used);
  }
  ~GuardedMemory() { munmap(memory_, size_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  T* data() const { return values_; }
  std::span<T> values() const { return {values_, count_}; }
  std::vector<std::byte> bytes() const {
    const auto* const first = reinterpret_cast<const std::byte*>(values_);
    return {first, first + count_ * sizeof(T)};
  }

 private:
  std::size_t count_;
  std::size_t size_ = 0;
  std::byte* memory_ = nullptr;
  T* values_ = nullptr;
};

template <int kStep, class Kernel>
void disordered_steps(const Kernel& kernel, kernels::Place at, typename Kernel::Shared& shared,
                      std::vector<int>& threads, std::mt19937& order) {
  std::shuffle(threads.begin(), threads.end(), order);
  for (const int thread : threads) {
    at.thread = thread;
    kernel.template step<kStep>(at, shared);
  }
  if constexpr (kStep + 1 < Kernel::kSteps) disordered_steps<kStep + 1>(kernel, at, shared, threads, order);
}

// Other seeds are other orders; 0 is the order of launch().
template <class Kernel>
void launch_disordered(const Kernel& kernel, kernels::Grid grid, std::uint32_t seed) {
  using Shared = typename Kernel::Shared;
  static_assert(std::is_trivially_copyable_v<Shared>);
  std::mt19937 order(seed);
  std::vector<int> blocks(static_cast<std::size_t>(grid.x) * static_cast<std::size_t>(grid.y)),
      threads(Kernel::kThreads);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::iota(threads.begin(), threads.end(), 0);
  if (seed != 0) std::shuffle(blocks.begin(), blocks.end(), order);
  const auto shared = std::make_unique<Shared>();
  for (const int block : blocks) {
    const kernels::Place at{0, block % grid.x, block / grid.x};
    if (seed == 0) {
      kernels::run_block_from<0>(kernel, at, *shared);
      continue;
    }
    std::memset(static_cast<void*>(shared.get()), 0xA5, sizeof(Shared));
    disordered_steps<0>(kernel, at, *shared, threads, order);
  }
}

}  // namespace holdfast::test
