#include "holdfast/state/internal/wanted_part.h"

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

WantedPart wanted_part(const at::Tensor& tensor, const ImageLayout& layout, std::size_t index,
                       std::span<std::byte> image) {
  const auto slot = layout.slot(index, image);
  const ByteRange wanted = layout.wanted(index);
  if (wanted.size() == slot.size()) return {tensor, slot};
  if (wanted.size() == 0) return {};
  // A strided tensor is copied whole: its part is no contiguous range of memory.
  if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) return {tensor, slot};
  // Without this, view() and narrow() would extend the graph of the training.
  const at::NoGradGuard no_grad;
  const auto element = static_cast<std::uint64_t>(tensor.element_size());
  at::Tensor part = tensor.detach().view(-1).narrow(0, static_cast<std::int64_t>(wanted.begin / element),
                                                    static_cast<std::int64_t>(wanted.size() / element));
  return {std::move(part), slot.subspan(wanted.begin, wanted.size())};
}

}}}  // namespace holdfast::v0_2::internal
