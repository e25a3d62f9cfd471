// The batch of one optimizer update stays what it is when the number of ranks changes: it is divided anew,
// over the ranks and, where a pass has room for so many samples only, into micro-batches.
//
//   const BatchShare share = divide_batch(128, group.world_size(), /*most=*/32);
//   log_info(to_text(share));             // "global batch 128 = 2 ranks × 32 × 2 micro-batches"
//   Loader loader(data, {.batch_size = share.batch_size, .accumulation = share.accumulation,
//                        .shard = {group.rank(), group.world_size()}});
//
// The samples of update k are the same in every division, in the same global order (sampler.h). Sums are
// rounded otherwise, and batch norms see batches of another size.
//
// Errors: UsageError, in one line, when it cannot be divided; it names the numbers nearby that can.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::inline v1 {

struct BatchShare {
  std::int64_t ranks = 1;
  std::int64_t batch_size = 1;    // samples of one pass of one rank: LoaderOptions::batch_size
  std::int64_t accumulation = 1;  // passes of one update: LoaderOptions::accumulation

  std::int64_t global() const { return ranks * batch_size * accumulation; }
  bool operator==(const BatchShare&) const = default;
};

// Divides `global` samples over so many ranks, in as few equal passes of at most `most` samples as there can
// be. 0: one pass. Refused, too: a division by chance, into more than twice the passes that `most` asks for
// (a share of 127 with room for 64 is 127 passes of 1).
BatchShare divide_batch(std::int64_t global, std::int64_t ranks, std::int64_t most = 0);

std::string to_text(const BatchShare& share);

}  // namespace holdfast::inline v1
