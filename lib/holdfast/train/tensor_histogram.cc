#include "holdfast/train/tensor_histogram.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::int64_t kBins = 64;
// Elements at once: the numbers in between are wide, and the device is full of weights and gradients.
constexpr std::int64_t kPiece = 1 << 22;

// In double, because the square of a large float overflows. NaN and infinities have no bin.
at::Tensor finite(const at::Tensor& piece) {
  const at::Tensor values = piece.to(at::kFloat);
  return values.index({values.isfinite()}).to(at::kDouble);
}

}  // namespace

HistogramEvent histogram_of(std::string name, const at::Tensor& tensor, std::int64_t step) {
  const at::NoGradGuard no_grad;
  HistogramEvent event{.step = step, .name = std::move(name)};
  const std::vector<at::Tensor> pieces = tensor.detach().reshape({-1}).split(kPiece);
  event.min = std::numeric_limits<double>::infinity();
  event.max = -event.min;
  for (const at::Tensor& piece : pieces) {
    const at::Tensor wide = finite(piece);
    if (wide.numel() == 0) continue;
    const at::Tensor figures =
        at::stack({wide.min(), wide.max(), wide.sum(), wide.square().sum()}).to(at::kCPU).contiguous();
    const auto* const numbers = figures.const_data_ptr<double>();
    event.min = std::min(event.min, numbers[0]);
    event.max = std::max(event.max, numbers[1]);
    event.sum += numbers[2];
    event.sum_of_squares += numbers[3];
    event.count += static_cast<double>(wide.numel());
  }
  if (event.count == 0) {
    event.min = event.max = 0;
    event.limits = {0};
    event.counts = {0};
    return event;
  }
  // Without a range the width of a bin would be 0.
  if (event.min == event.max) {
    event.limits = {event.max};
    event.counts = {event.count};
    return event;
  }
  // Not histc: it overflows for a range beyond float's, and a GPU refuses it where it must be deterministic.
  // The largest value belongs to the last bin.
  event.counts.assign(kBins, 0);
  for (const at::Tensor& piece : pieces) {
    const at::Tensor bin_of =
        ((finite(piece) - event.min) * (kBins / (event.max - event.min))).to(at::kLong).clamp_max(kBins - 1);
    const at::Tensor counts = at::bincount(bin_of, {}, kBins).to(at::kCPU, at::kDouble).contiguous();
    const auto* const bins = counts.const_data_ptr<double>();
    for (std::int64_t bin = 0; bin < kBins; ++bin) event.counts[static_cast<std::size_t>(bin)] += bins[bin];
  }
  // TensorBoard wants the upper end of each bin; the lower end is that of the bin before.
  for (std::int64_t bin = 1; bin <= kBins; ++bin) {
    event.limits.push_back(event.min + (event.max - event.min) * static_cast<double>(bin) / kBins);
  }
  return event;
}

}}  // namespace holdfast::v0_2
