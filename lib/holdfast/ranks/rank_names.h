// Ranks in messages for people, and in keys of the run's store.
//
// Errors: std::bad_alloc. Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// "rank 3", "ranks 1, 3 and 7", "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 53 more".
HOLDFAST_EXPORT std::string ranks_in_words(std::span<const int> ranks);
// "here/0" …, one for each rank.
HOLDFAST_EXPORT std::vector<std::string> keys_of_ranks(const std::string& stem, int world_size);

}}  // namespace holdfast::v0_2
