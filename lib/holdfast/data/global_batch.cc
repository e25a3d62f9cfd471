#include "holdfast/data/global_batch.h"

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string ranks_in_number(std::int64_t ranks) {
  return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
}

// The multiples of `step` next to `number`; the lower one only if it is positive.
std::string neighbours(std::int64_t number, std::int64_t step) {
  const std::int64_t below = number - number % step;
  std::int64_t above = 0;
  // Near the end of the numbers there is no multiple above.
  if (__builtin_add_overflow(below, step, &above)) return std::to_string(below);
  return (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(above);
}

// "2 or 4 ranks": the nearest numbers that divide the batch. Requires ranks > 1.
std::string fitting_ranks(std::int64_t global, std::int64_t ranks) {
  std::int64_t below = ranks - 1;
  while (below > 1 && global % below != 0) --below;
  // Within twice the number, because a far answer helps nobody.
  for (std::int64_t above = ranks + 1; above <= global && above <= 2 * ranks; ++above) {
    if (global % above == 0) return std::to_string(below) + " or " + ranks_in_number(above);
  }
  return ranks_in_number(below);
}

}  // namespace

BatchShare divide_batch(std::int64_t global, std::int64_t ranks, std::int64_t most) {
  const auto require = [](bool good, const std::string& message) {
    if (!good) throw UsageError(message);
  };
  // Checked here and not in the sampler, because the user has named these numbers.
  require(ranks >= 1, "a batch is divided over 1 rank at least, not " + std::to_string(ranks));
  require(global >= 1, "the global batch must be at least 1, not " + std::to_string(global));
  require(most >= 0, "the largest micro-batch must be at least 1 (0: no limit), not " + std::to_string(most));
  if (global % ranks != 0) {
    throw UsageError("a global batch of " + std::to_string(global) + " does not divide by " +
                     ranks_in_number(ranks) + ": make it " + neighbours(global, ranks) + ", or start " +
                     fitting_ranks(global, ranks));
  }
  const std::int64_t share = global / ranks;
  if (most == 0 || share <= most) return {.ranks = ranks, .batch_size = share, .accumulation = 1};

  // Rounded up: the fewest micro-batches that keep within the limit.
  const std::int64_t fewest = share / most + (share % most != 0 ? 1 : 0);
  // Up to twice as many; a share that does not divide would otherwise end in batches of 1.
  for (std::int64_t passes = fewest; passes <= share && passes <= 2 * fewest; ++passes) {
    if (share % passes == 0) return {.ranks = ranks, .batch_size = share / passes, .accumulation = passes};
  }
  throw UsageError("a global batch of " + std::to_string(global) + " leaves " + std::to_string(share) +
                   " to each of " + ranks_in_number(ranks) +
                   ", which does not divide into micro-batches of " + std::to_string(most) +
                   " or a little less: make it " + neighbours(global, ranks * fewest));
}

std::string to_text(const BatchShare& share) {
  return "global batch " + std::to_string(share.global()) + " = " + ranks_in_number(share.ranks) + " × " +
         std::to_string(share.batch_size) +
         (share.accumulation == 1 ? "" : " × " + std::to_string(share.accumulation) + " micro-batches");
}

}}  // namespace holdfast::v0_2
