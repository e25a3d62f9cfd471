// Which bytes of a tensor this rank copies into its image when several ranks stage one file together
// (ImageLayout::wanted). It is the wanted part if the bytes lie in logical order, otherwise the whole tensor.
//
// Errors: none. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>

#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct WantedPart {
  at::Tensor tensor;
  std::span<std::byte> to;  // empty: this rank copies nothing of it
};

WantedPart wanted_part(const at::Tensor& tensor, const ImageLayout& layout, std::size_t index,
                       std::span<std::byte> image);

}}}  // namespace holdfast::v0_2::internal
