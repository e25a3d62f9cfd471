// Copies the elements of a strided tensor in logical order with plain loads and stores. It needs no temporary
// memory, no threads and no ATen dispatch, so any thread may call it beside the training.
//
// Requires: memory that holds the elements; element sizes of 1, 2, 4, 8 or 16 bytes. Threads: free functions;
// they only read the tensor's memory.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Strided {
  const std::byte* from = nullptr;  // the first element
  std::size_t element = 1;          // bytes
  // Outermost dimension first; strides count elements. Dimensions of size 1 are left out, and dimensions that
  // lie end to end are joined.
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
};

Strided strided(const std::byte* from, std::size_t element, c10::ArrayRef<std::int64_t> sizes,
                c10::ArrayRef<std::int64_t> strides);

void copy_strided(const Strided& tensor, std::byte* to) noexcept;
// Returns true if copy_strided() would write the bytes that `image` already has.
bool same_as_strided(const Strided& tensor, const std::byte* image) noexcept;

}}}  // namespace holdfast::v0_2::internal
