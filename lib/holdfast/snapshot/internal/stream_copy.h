// memcpy for memory that is not read again soon: past the caches where the processor can, so that the copy
// takes less of the memory's time (no line is fetched to be overwritten) and leaves the training its caches.
// Short ones are plain copies.
//
// Requires ranges that do not overlap.
// Ensures: when it has returned, what synchronizes with this thread sees the bytes, as after memcpy.
// Threads: any.
#pragma once

#include <cstddef>

namespace holdfast::inline v1::internal {

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace holdfast::inline v1::internal
