#include "holdfast/optim/internal/tails.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The fused kernels compute whole vectors, and the rest element by element with another rounding.
constexpr std::size_t kVectors = 64;  // bytes; a multiple of every vector length

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.unsafeGetTensorImpl()->mutable_data());
}
std::byte* end_of(const at::Tensor& tensor, std::size_t bytes) {
  return bytes_of(tensor) + tensor.nbytes() - bytes;
}

}  // namespace

void Tails::add(KernelList& list) {
  ends_.clear();
  // Half precision has its own rule: fused_sgd.cc tries the kernel.
  if (list.dtype != at::kFloat && list.dtype != at::kDouble) return;
  for (std::size_t row = 0; row < list.parameters.size(); ++row) {
    const std::size_t bytes = list.parameters[row].nbytes() % kVectors;
    if (bytes != 0) ends_.push_back({row, bytes});
  }
  if (ends_.empty()) return;
  const auto length =
      static_cast<std::int64_t>(ends_.size() * kVectors / list.parameters.front().element_size());
  // The ends of all tensors, side by side in one more tensor that is a multiple of every vector.
  const std::array<std::vector<at::Tensor>*, 3> rows = {&list.parameters, &list.gradients, &list.slots[0]};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i]->empty()) continue;
    at::Tensor& scratch = scratch_[i];
    if (!scratch.defined() || scratch.numel() != length || scratch.scalar_type() != list.dtype) {
      scratch = at::empty({length}, list.dtype);
    }
    std::byte* to = bytes_of(scratch);
    // Zeros between the ends stay zeros and are never copied back.
    std::memset(to, 0, scratch.nbytes());
    for (const End& end : ends_) {
      std::memcpy(to, end_of((*rows[i])[end.row], end.bytes), end.bytes);
      to += kVectors;
    }
    rows[i]->push_back(scratch);
  }
}

void Tails::put_back(KernelList& list) {
  if (ends_.empty()) return;
  list.gradients.pop_back();  // the kernel at most divided it, which gives the same bits everywhere
  for (auto* const rows : {&list.parameters, &list.slots[0]}) {
    if (rows->empty()) continue;
    const std::byte* from = bytes_of(rows->back());
    for (const End& end : ends_) {
      std::memcpy(end_of((*rows)[end.row], end.bytes), from, end.bytes);
      from += kVectors;
    }
    rows->pop_back();
  }
}

}}}  // namespace holdfast::v0_2::internal
