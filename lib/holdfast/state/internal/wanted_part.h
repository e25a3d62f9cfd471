// What of a tensor is to be copied into an image, where several ranks stage one file together
// (ImageLayout::wanted): that part alone where its bytes lie in logical order, and otherwise all of it.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1::internal {

struct WantedPart {
  at::Tensor tensor;
  std::span<std::byte> to;  // empty: nothing is
};

WantedPart wanted_part(const at::Tensor& tensor, const ImageLayout& layout, std::size_t index,
                       std::span<std::byte> image);

}  // namespace holdfast::inline v1::internal
