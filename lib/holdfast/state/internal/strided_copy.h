// The elements of a strided tensor in logical order, by plain loads and stores: no temporary, no threads and
// no dispatch, so that any thread may do it beside the training.
//
// Requires memory that holds the elements; element sizes of 1, 2, 4, 8 or 16 bytes.
// Threads: free functions; they only read the tensor's memory.
#pragma once

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

namespace holdfast::inline v1::internal {

struct Strided {
  const std::byte* from = nullptr;  // the first element
  std::size_t element = 1;          // bytes
  // The outermost first; strides count elements. Without dimensions of one element, and with those joined
  // that are walked as one.
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
};

Strided strided(const std::byte* from, std::size_t element, c10::ArrayRef<std::int64_t> sizes,
                c10::ArrayRef<std::int64_t> strides);

void copy_strided(const Strided& tensor, std::byte* to) noexcept;
// Whether copy_strided would write what is there already.
bool same_as_strided(const Strided& tensor, const std::byte* image) noexcept;

}  // namespace holdfast::inline v1::internal
