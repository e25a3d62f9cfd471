// Finds the losses of a few steps in an attempt's ledger of any length: 15 million steps take 240 MB. Losses
// lie in the order of their steps, so a binary search finds the place, and only what follows is read:
//
//   const auto losses = losses_after(*ledger, 1234, 16);  // of the next 16 recorded steps
//
// Cost: less than 1 MiB of memory, about 20 reads of 64 KiB, and up to 16 MiB after the place found.
// Errors: IoError from a read. Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

// Loss bits by step, of the first `most` recorded steps after `step`. Other lines are ignored. If a step
// appears twice the first value counts. Returns fewer if the ledger has no more within 16 MiB.
std::map<std::int64_t, double> losses_after(const File& ledger, std::int64_t step, std::size_t most);

}}  // namespace holdfast::v0_2
