// Which elements of which parameters each rank updates. The parameters of a group are laid end to end, in
// memory order, and cut into chunks; every rank has an equal part of each chunk. So kernels compute few long
// tensors instead of many short ones, and a chunk limits the memory of a collective.
//
// A pure function of the parameters, the limit and the number of ranks. Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/state/whole_tensors.h"

namespace holdfast { inline namespace v0_2 {

// One type and one device. Pieces lie end to end. Rank r has elements [r * share, (r + 1) * share); the last
// ones may be padding.
struct Chunk {
  std::vector<Piece> pieces;
  std::int64_t share = 0;
  c10::TensorOptions options;
};

// Requires parameters without gaps (is_dense). `bytes`: limit of a chunk, which has at least one element.
std::vector<Chunk> cut(const std::vector<at::Tensor>& parameters, std::int64_t bytes, int ranks);

// The part of `pieces` in [begin, end) of their chunk; `at` counts from `begin`.
std::vector<Piece> within_part(const std::vector<Piece>& pieces, std::int64_t begin, std::int64_t end);

bool is_dense(const at::Tensor& tensor);
// All elements as one row, in memory order. Requires is_dense().
at::Tensor dense_view(const at::Tensor& tensor);
// `tensor` with the memory layout of `like`; itself if it has that layout.
at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& tensor);

}}  // namespace holdfast::v0_2
