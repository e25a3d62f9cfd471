// The histories in which memory runs out: saves of a run that goes on, the policy's saves on the training
// thread, the end, a run that is left without one, and the start.
//
// Each counts the requests of its own part first (`nth` 0), so that it is known how many there are.
// Threads: one; the library's own threads live inside a point.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "batches.h"
#include "holdfast/snapshot/digest.h"

namespace holdfast::test::memory {

struct Kind {
  const char* name;
  std::unique_ptr<Series> (*make)(const std::filesystem::path& folder, const std::vector<Digest>& straight,
                                  bool for_ever);
};
extern const std::vector<Kind> kKinds;

// The same under RLIMIT_AS: point 1 has plenty of room, point kLimits none. A point's `elsewhere` means that
// it found no memory.
inline constexpr int kLimits = 40;
extern const std::vector<Kind> kLimitedKinds;

// How many requests one point of a series makes; the fewest of a few.
std::uint64_t requests_of(const std::function<std::unique_ptr<Series>()>& make);

}  // namespace holdfast::test::memory
