// How ranks find each other: all come to one store, say who they are, and learn from rank 0 whether everybody
// is there.
//
// Keys, below "holdfast/<restart>/": who (rank 0: the job), come/<r> (a count: twice is an error), here/<r>,
// verdict (rank 0: "go", or the sentence that all ranks end with), read/<r>.
//
// Errors: UsageError and GroupError, as process_group.h says. Threads: one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "holdfast/base/launch_environment.h"
#include "holdfast/distributed/internal/store_line.h"

namespace holdfast::inline v1 {

// "rank 3", "ranks 1, 3 and 7", with more than eight "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 53 more".
std::string ranks_in_words(std::span<const int> ranks);
// "here/0" …, one for each rank.
std::vector<std::string> keys_of_ranks(const std::string& stem, int world_size);
// The ranks of such keys.
std::vector<int> ranks_of_keys(std::span<const std::string> keys);
// The first line of what c10d or Gloo says, without its backtrace.
std::string brief(const std::exception& error);

// Returns when all ranks are there. `place` has more than one rank, or is made to meet itself.
StoreLine meet(const LaunchEnvironment& place, Duration limit);

// Another connection to the store of a meeting that has taken place. Requires more than one rank.
c10::intrusive_ptr<c10d::Store> connect_again(const LaunchEnvironment& place, Duration limit);

}  // namespace holdfast::inline v1
