#include "holdfast/distributed/internal/slices.h"

#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "holdfast/state/tensor_bytes.h"

namespace holdfast { inline namespace v0_2 {

std::vector<Chunk> cut(const std::vector<at::Tensor>& parameters, std::int64_t bytes, int ranks) {
  std::vector<Chunk> chunks;
  std::int64_t used = 0;
  std::int64_t room = 0;
  const auto close = [&] {
    // Rounded up: the last share is padded, because all ranks send and receive the same number.
    if (!chunks.empty()) chunks.back().share = (used + ranks - 1) / ranks;
  };
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    const at::Tensor& parameter = parameters[index];
    const auto options = at::TensorOptions(parameter.scalar_type()).device(parameter.device());
    for (std::int64_t from = 0; from < parameter.numel();) {
      // A chunk has one type and one device, because it is one message.
      if (chunks.empty() || room == 0 || chunks.back().options.dtype() != options.dtype() ||
          chunks.back().options.device() != options.device()) {
        close();
        chunks.push_back({.pieces = {}, .share = 0, .options = options});
        used = 0;
        room = std::max<std::int64_t>(bytes / static_cast<std::int64_t>(parameter.element_size()), 1);
      }
      // A large parameter goes on in the next chunk, so that no message exceeds the bytes.
      const std::int64_t count = std::min(parameter.numel() - from, room);
      chunks.back().pieces.push_back({.parameter = index, .from = from, .at = used, .count = count});
      from += count;
      used += count;
      room -= count;
    }
  }
  close();
  return chunks;
}

std::vector<Piece> within_part(const std::vector<Piece>& pieces, std::int64_t begin, std::int64_t end) {
  std::vector<Piece> found;
  for (const Piece& piece : pieces) {
    const std::int64_t first = std::max(piece.at, begin);
    const std::int64_t last = std::min(piece.at + piece.count, end);
    if (first >= last) continue;
    found.push_back({.parameter = piece.parameter,
                     .from = piece.from + (first - piece.at),
                     .at = first - begin,
                     .count = last - first});
  }
  return found;
}

bool is_dense(const at::Tensor& tensor) { return dense_strides(tensor.sizes(), tensor.strides()); }

at::Tensor dense_view(const at::Tensor& tensor) {
  // In the order of memory and not of dimensions: channels-last parameters are shared as they lie.
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
}

at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& tensor) {
  if (tensor.strides() == like.strides()) return tensor;
  const at::Tensor moved = at::empty_strided(like.sizes(), like.strides(), tensor.options());
  moved.copy_(tensor);
  return moved;
}

}}  // namespace holdfast::v0_2
