#include "holdfast/train/tensor_histogram.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <utility>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::int64_t kBins = 64;

}  // namespace

HistogramEvent histogram_of(std::string name, const at::Tensor& tensor, std::int64_t step) {
  const at::NoGradGuard no_grad;
  HistogramEvent event{.step = step, .name = std::move(name)};
  // NaN and infinities have no bin.
  at::Tensor values = tensor.detach().reshape({-1}).to(at::kFloat);
  values = values.index({values.isfinite()});
  if (values.numel() == 0) {
    event.limits = {0};
    event.counts = {0};
    return event;
  }
  // In double: the square of a large float overflows.
  const at::Tensor wide = values.to(at::kDouble);
  const at::Tensor figures =
      at::stack({wide.min(), wide.max(), wide.sum(), wide.square().sum()}).to(at::kCPU).contiguous();
  const auto* const numbers = figures.const_data_ptr<double>();
  event.min = numbers[0];
  event.max = numbers[1];
  event.sum = numbers[2];
  event.sum_of_squares = numbers[3];
  event.count = static_cast<double>(values.numel());
  // Without a range the width of a bin would be 0.
  if (event.min == event.max) {
    event.limits = {event.max};
    event.counts = {event.count};
    return event;
  }
  // Not histc: it overflows for a range beyond float's, and a GPU refuses it where it must be deterministic.
  // The largest value belongs to the last bin.
  const at::Tensor bin_of =
      ((wide - event.min) * (kBins / (event.max - event.min))).to(at::kLong).clamp_max(kBins - 1);
  const at::Tensor counts = at::bincount(bin_of, {}, kBins).to(at::kCPU, at::kDouble).contiguous();
  const auto* const bins = counts.const_data_ptr<double>();
  event.counts.assign(bins, bins + kBins);
  // TensorBoard wants the upper end of each bin; the lower end is that of the bin before.
  for (std::int64_t bin = 1; bin <= kBins; ++bin) {
    event.limits.push_back(event.min + (event.max - event.min) * static_cast<double>(bin) / kBins);
  }
  return event;
}

}}  // namespace holdfast::v0_2
