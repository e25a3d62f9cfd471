// Keeps the batch of one optimizer update constant when the number of ranks changes. It divides the batch
// over the ranks and, if a pass has room for fewer samples, into micro-batches.
//
//   const BatchShare share = divide_batch(128, group.world_size(), /*most=*/32);
//   log_info(to_text(share));             // "global batch 128 = 2 ranks × 32 × 2 micro-batches"
//   Loader loader(data, {.batch_size = share.batch_size, .accumulation = share.accumulation, …});
//
// Every division has the same samples in update k, in the same global order (sampler.h). Sums round
// differently, and batch norms see batches of another size. Errors: UsageError, one line, if it cannot be
// divided; it names nearby numbers that can. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct BatchShare {
  std::int64_t ranks = 1;
  std::int64_t batch_size = 1;    // samples of one pass on one rank: LoaderOptions::batch_size
  std::int64_t accumulation = 1;  // passes of one update: LoaderOptions::accumulation

  std::int64_t global() const { return ranks * batch_size * accumulation; }
  bool operator==(const BatchShare&) const = default;
};

// Divides `global` samples over `ranks`, in the fewest equal passes of at most `most` samples. `most` 0: one
// pass. Refuses a division into more than twice the passes that `most` requires: a share of 127 with room for
// 64 would be 127 passes of 1.
HOLDFAST_EXPORT BatchShare divide_batch(std::int64_t global, std::int64_t ranks, std::int64_t most = 0);

HOLDFAST_EXPORT std::string to_text(const BatchShare& share);

}}  // namespace holdfast::v0_2
