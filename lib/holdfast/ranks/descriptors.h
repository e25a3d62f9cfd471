// File descriptors for the connections of a large run. A process may open 1,024 files unless it asks for
// more; rank 0's store alone needs three for each rank.
//
// Errors: UsageError if the system allows too few. Threads: any.
#pragma once

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Raises this process's soft limit on open files, up to the hard limit, so that rank `rank` of `world_size`
// has room for its connections. Never lowers it.
HOLDFAST_EXPORT void make_room_for_ranks(int rank, int world_size);

}}  // namespace holdfast::v0_2
