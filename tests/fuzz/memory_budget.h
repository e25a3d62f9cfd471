// Asserts, in a fuzz target, that a length in hostile bytes never becomes an allocation before it is checked:
// while a budget lives, the process's heap and its anonymous mappings (arenas are mapped, so that no malloc
// limit sees them) may together grow by so many bytes at most. One more, and the process aborts with the
// stack of whoever asked.
//
// What an input may cost is `budget_for` its size: decoded forms are larger than their text by a factor (an
// attribute of six bytes is a node of a hundred and more), never by a number that stands in it.
//
// Threads: one budget at a time; allocations of all threads count.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::test {

class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t bytes);
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;
};

// 4 MiB, and 96 times the input.
constexpr std::uint64_t budget_for(std::size_t input) {
  return (std::uint64_t{4} << 20) + 96 * std::uint64_t{input};
}

// Aborts, so that the fuzzer keeps the input, when what must hold does not.
void require(bool holds, const char* what);

}  // namespace holdfast::test
