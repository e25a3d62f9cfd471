// Memory copies that are gathered first and made later, by as many threads as help: small ones and large ones
// laid end to end and shared out evenly by bytes.
//
// Requires: every source and destination stays where it is until the copies are made; destinations do not
// overlap.
// Threads: add() by the owner, before the rest; copy() by any thread, on disjoint ranges; work() by any
// number of threads at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::inline v1 {

class CopyList {
 public:
  // Requires spans of one size. Empty ones are left out.
  void add(std::span<const std::byte> from, std::span<std::byte> to);
  std::uint64_t bytes() const { return bytes_; }

  // Makes the part [begin, end) of all copies laid end to end. Requires end <= bytes().
  void copy(std::uint64_t begin, std::uint64_t end) const noexcept;
  // Takes pieces that nobody has taken yet until there are none; other threads may still be copying theirs.
  void work() noexcept;

 private:
  struct Job {
    std::uint64_t start;  // bytes of the jobs before
    std::uint64_t bytes;
    std::byte* to;
    const std::byte* from;
  };
  std::vector<Job> jobs_;
  std::uint64_t bytes_ = 0;
  std::atomic<std::uint64_t> taken_{0};
};

}  // namespace holdfast::inline v1
