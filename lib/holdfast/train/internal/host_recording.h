// Ends what a failed capture of a CUDA graph began in LibTorch's allocator of page-locked memory. From 2.11
// on, capture_begin() also records there; if the capture fails, LibTorch ends only a part of it, and the
// graph's page-locked memory would never be freed.
//
// Threads: the thread of the capture.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cstddef>
#include <exception>

namespace holdfast { inline namespace v0_2 { namespace internal {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11
inline at::HostAllocator* host_allocator_of(c10::DeviceType type) { return at::getHostAllocator(type); }
#else
inline std::nullptr_t host_allocator_of(c10::DeviceType) { return nullptr; }
#endif

// Does nothing if the allocator does not record for this pool, or cannot (before 2.11).
template <class Allocator, class Pool>
void end_host_recording(Allocator allocator, const Pool& pool) {
  if constexpr (requires { allocator->end_allocate_to_pool(pool); }) {
    try {
      allocator->end_allocate_to_pool(
          pool);  // throws if it does not record; then there is nothing to release
      allocator->release_pool(pool);
    } catch (const std::exception&) {
    }
  }
}

}}}  // namespace holdfast::v0_2::internal
