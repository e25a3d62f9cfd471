// memcpy for memory that is not read again soon. It bypasses the caches if the processor can, so it loads no
// line that it overwrites, and leaves the caches to training. Short copies are plain.
//
// Requires ranges that do not overlap.
// Ensures: after it returns, a thread that synchronizes with this one sees the bytes, as after memcpy.
// Errors: none. Threads: any.
#pragma once

#include <cstddef>

namespace holdfast { inline namespace v0_2 { namespace internal {

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}}}  // namespace holdfast::v0_2::internal
