#include "holdfast/data/resident_pictures.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/data/internal/augment_options.h"
#include "holdfast/data/internal/crop_flip_normalize_kernel.h"
#include "holdfast/kernels/kernel.h"

namespace holdfast { inline namespace v0_2 {
namespace kernels {

// Defined in a source that CMake generates (holdfast_embed_kernels() in cmake/module.cmake).
std::span<const Text> texts_of_data();

}  // namespace kernels

namespace {

constexpr kernels::Source kCropFlipNormalize{"holdfast/data/internal/crop_flip_normalize_kernel.h",
                                             &kernels::texts_of_data};
// The kernel's header cannot include that of the table, because NVRTC has no standard library.
static_assert(kernels::CropFlipNormalize::kPadding == NormalizeTable::kPadding);

at::Tensor bytes_of(PictureSet& pictures) {
  return at::from_blob(pictures.record(0), {pictures.size(), pictures.record_bytes()}, at::kByte);
}

at::Tensor table_of(const AugmentOptions& augmentation, const PictureShape& shape) {
  NormalizeTable table(augmentation);
  // A clone, because from_blob() does not own the table, which ends with this function.
  return at::from_blob(table.value.data(), {shape.channels, NormalizeTable::kPadding + 1}, at::kFloat)
      .clone();
}

}  // namespace

ResidentPictures::ResidentPictures(PictureSet pictures, const AugmentOptions& augmentation,
                                   const ResidentOptions& options)
    : augmentation_(augmentation),
      options_(options),
      fingerprint_(pictures.fingerprint()),
      shape_(pictures.shape()) {
  internal::check_augmentation(augmentation, shape_);
  // The kernel reads the same layout on both devices.
  if (options.device.is_cpu()) {
    // No copy on a CPU: the records are a view of the pictures.
    host_ = std::move(pictures);
    records_ = bytes_of(*host_);
    table_ = table_of(augmentation, shape_);
    return;
  }
  try {
    records_ = bytes_of(pictures).to(options.device);
    table_ = table_of(augmentation, shape_).to(options.device);
  } catch (const c10::OutOfMemoryError&) {
    const std::int64_t bytes = pictures.size() * pictures.record_bytes();
    throw UsageError(options.device.str() + " has no room for " + std::to_string(bytes / 1'000'000 + 1) +
                     " MB of pictures (" + pictures.name() + "): leave them on the host");
  }
}

std::vector<at::Tensor> ResidentPictures::get_batch(const BatchRequest& request, TensorPool& pool) const {
  // Drawn on the host: the bits must not depend on the device's generator.
  at::Tensor choices = pool.take({static_cast<std::int64_t>(request.samples.size()), 4}, at::kLong);
  auto* row = choices.mutable_data_ptr<std::int64_t>();
  for (const std::int64_t sample : request.samples) {
    const AugmentChoice choice = choose_augmentation(augmentation_, request.seed, request.epoch, sample);
    *row++ = sample;
    *row++ = choice.top;
    *row++ = choice.left;
    *row++ = choice.flip ? 1 : 0;
  }
  return {std::move(choices)};
}

std::vector<at::Tensor> ResidentPictures::finish_batch(std::vector<at::Tensor> made) const {
  // From pinned memory the copy runs beside the device's work.
  const at::Tensor choices = made.front().to(options_.device, /*non_blocking=*/true);
  const auto on_device = at::TensorOptions().device(options_.device);
  at::Tensor inputs = at::empty({choices.size(0), shape_.channels, shape_.height, shape_.width},
                                on_device.dtype(at::kFloat).memory_format(options_.layout));
  at::Tensor targets = at::empty({choices.size(0)}, on_device.dtype(at::kLong));
  const kernels::CropFlipNormalize kernel{
      .records = records_.const_data_ptr<std::uint8_t>(),
      // std::int64_t is long here and Index long long: two types of the same 64 bits.
      .choices = reinterpret_cast<const kernels::Index*>(choices.const_data_ptr<std::int64_t>()),
      .table = table_.const_data_ptr<float>(),
      .inputs = inputs.mutable_data_ptr<float>(),
      .targets = reinterpret_cast<kernels::Index*>(targets.mutable_data_ptr<std::int64_t>()),
      .channels = shape_.channels,
      .height = shape_.height,
      .width = shape_.width,
      .padding = augmentation_.padding,
      // Where both layouts are the same memory, as with one channel, either answer is right.
      .channels_last = !inputs.is_contiguous()};
  // On the device's current stream, which nobody waits for.
  kernels::launch<kCropFlipNormalize>(kernel, {.x = static_cast<int>(choices.size(0))}, inputs.device());
  return {std::move(inputs), std::move(targets)};
}

void ResidentPictures::save_options(StateWriter& out) const {
  internal::save_augmentation(augmentation_, shape_, out);
}

}}  // namespace holdfast::v0_2
