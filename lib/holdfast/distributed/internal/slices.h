// Which elements of which parameters a rank updates, when each updates a share: the parameters of a group are
// strung together, in the order of memory, and cut into chunks; of each chunk every rank has an equal part.
// Whole-vector kernels compute few long tensors instead of many short ones, and a chunk bounds the memory of
// a collective.
//
// A pure function of the parameters, the limit and the number of ranks. Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "holdfast/state/whole_tensors.h"

namespace holdfast::inline v1 {

// One type, one device; pieces lie one after the other. Rank r has elements [r share, (r + 1) share); the
// last may be padding.
struct Chunk {
  std::vector<Piece> pieces;
  std::int64_t share = 0;
  c10::TensorOptions options;
};

// Requires: parameters without gaps (dense_view). `bytes`: of a chunk, at least one element.
std::vector<Chunk> cut(const std::vector<at::Tensor>& parameters, std::int64_t bytes, int ranks);

// The part of `pieces` that lies in [begin, end) of their chunk, with `at` counted from `begin`.
std::vector<Piece> within_part(const std::vector<Piece>& pieces, std::int64_t begin, std::int64_t end);

bool is_dense(const at::Tensor& tensor);
// All elements as one row, in the order of memory. Requires is_dense().
at::Tensor dense_view(const at::Tensor& tensor);
// `tensor`, laid out in memory as `like`: itself, where it is already.
at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& tensor);

}  // namespace holdfast::inline v1
