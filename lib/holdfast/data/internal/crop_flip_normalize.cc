#include "holdfast/data/internal/crop_flip_normalize.h"

#include "holdfast/data/internal/crop_flip_normalize_kernel.h"
#include "holdfast/kernels/kernel.h"

namespace holdfast { inline namespace v0_2 {
namespace kernels {

// Defined in a source that CMake generates (holdfast_embed_kernels() in cmake/module.cmake).
std::span<const Text> texts_of_data();

}  // namespace kernels

namespace internal {
namespace {

constexpr kernels::Source kSource{"holdfast/data/internal/crop_flip_normalize_kernel.h",
                                  &kernels::texts_of_data};

}  // namespace

// The kernel's header cannot include that of the table, because NVRTC has no standard library.
static_assert(kernels::CropFlipNormalize::kPadding == NormalizeTable::kPadding);

void crop_flip_normalize(const ResidentBytes& from, const at::Tensor& choices, at::Tensor& inputs,
                         at::Tensor& targets) {
  const kernels::CropFlipNormalize kernel{
      .records = from.records.const_data_ptr<std::uint8_t>(),
      // std::int64_t is long here and Index long long: two types of the same 64 bits.
      .choices = reinterpret_cast<const kernels::Index*>(choices.const_data_ptr<std::int64_t>()),
      .table = from.table.const_data_ptr<float>(),
      .inputs = inputs.mutable_data_ptr<float>(),
      .targets = reinterpret_cast<kernels::Index*>(targets.mutable_data_ptr<std::int64_t>()),
      .channels = from.shape.channels,
      .height = from.shape.height,
      .width = from.shape.width,
      .padding = from.padding,
      // Where both layouts are the same memory, as with one channel, either answer is right.
      .channels_last = !inputs.is_contiguous()};
  kernels::launch<kSource>(kernel, {.x = static_cast<int>(choices.size(0))}, inputs.device());
}

}  // namespace internal
}}  // namespace holdfast::v0_2
