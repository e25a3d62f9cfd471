#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <type_traits>

#include "holdfast/kernels/batch_norm.h"
#include "holdfast/kernels/internal/batch_norm_kernels.h"
#include "holdfast/kernels/internal/batch_norm_node.h"
#include "holdfast/kernels/internal/counters.h"
#include "holdfast/kernels/kernel.h"

namespace holdfast { inline namespace v0_2 {
namespace kernels {

inline constexpr Source kBatchNorm{"holdfast/kernels/internal/batch_norm_kernels.h", &texts_of_kernels};

namespace {

using internal::BackwardCall;
using internal::BatchNormCall;
using internal::BatchNormGradients;
using internal::BatchNormResult;

// Calls `body` with a value of the kernels' type for `type`.
template <class Body>
auto for_type(at::ScalarType type, const Body& body) {
  if (type == at::kHalf) return body(Half{});
  if (type == at::kBFloat16) return body(BFloat16{});
  return body(float{});
}

// Calls `body` with the flag as a type, for template arguments.
template <bool kFlag>
using Flag = std::bool_constant<kFlag>;
template <class Body>
void for_flag(bool flag, const Body& body) {
  if (flag) {
    body(Flag<true>{});
  } else {
    body(Flag<false>{});
  }
}

template <class T>
const T* in(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}
template <class T>
T* out(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr;
}

template <class T>
class Work {
 public:
  explicit Work(const at::Tensor& x)
      : device_(x.device()),
        tiling_(tile(x.numel() / x.size(1), static_cast<int>(x.size(1)), kPerPack<T>,
                     internal::multiprocessors_of(device_))),
        floats_(at::TensorOptions(device_).dtype(at::kFloat)) {}

  const Tiling& tiling() const { return tiling_; }
  at::Tensor floats(std::int64_t rows) const { return at::empty({rows, tiling_.channels}, floats_); }
  // One byte for each pack: one bit an element. Packs of floats use half of it.
  at::Tensor mask() const {
    return at::empty({tiling_.rows, tiling_.channels / kPerPack<T>}, floats_.dtype(at::kByte));
  }
  // Three floats for each slab and channel (column_sums.h).
  at::Tensor partial() const { return floats(std::int64_t{3} * tiling_.slabs); }
  at::Tensor counters() const { return internal::counters(device_, tiling_.groups); }

  template <class Kernel>
  void launch(const Kernel& kernel) const {
    kernels::launch<kBatchNorm>(kernel, {.x = tiling_.groups, .y = tiling_.slabs}, device_);
  }

 private:
  c10::Device device_;
  Tiling tiling_;
  at::TensorOptions floats_;
};

Channels channels_of(const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& statistics) {
  const float* const mean = in<float>(statistics);
  return {in<float>(weight), in<float>(bias), mean, mean + statistics.size(1)};
}

template <class T>
at::Tensor statistics_of_batch(const Work<T>& work, const BatchNormCall& call) {
  const at::Tensor statistics = work.floats(2);
  const at::Tensor partial = work.partial();
  const at::Tensor counters = work.counters();
  float* const mean = out<float>(statistics);
  work.launch(ChannelMoments<T>{.tiling = work.tiling(),
                                .sums = {out<float>(partial), out<unsigned>(counters)},
                                .x = in<T>(call.x),
                                .mean = mean,
                                .deviation = mean + work.tiling().channels,
                                .running_mean = out<float>(call.norm.running_mean),
                                .running_variance = out<float>(call.norm.running_var),
                                .momentum = static_cast<float>(call.norm.momentum),
                                .epsilon = static_cast<float>(call.norm.eps)});
  return statistics;
}

at::Tensor running_statistics(const BatchNormParameters& norm) {
  const at::Tensor statistics = at::empty({2, norm.running_mean.numel()}, norm.running_mean.options());
  statistics[0].copy_(norm.running_mean);
  // In the form in which ChannelMoments leaves the statistics of a batch, so one kernel serves both.
  statistics[1].copy_(norm.running_var).add_(norm.eps).sqrt_().reciprocal_();
  return statistics;
}

template <class T>
BatchNormResult forward_as(const BatchNormCall& call) {
  BatchNormResult result{.y = at::empty_like(call.x, call.x.options(), at::MemoryFormat::ChannelsLast),
                         .statistics = {},
                         .mask = {}};
  const Work<T> work(call.x);
  result.statistics = call.norm.training ? statistics_of_batch(work, call) : running_statistics(call.norm);
  const bool add = call.add.defined();
  // With z added, the backward pass cannot recompute from x whether the ReLU was open. So forward stores one
  // bit per element.
  if (add && call.relu && call.backward_follows) result.mask = work.mask();
  for_flag(add, [&]<bool kAdd>(Flag<kAdd>) {
    for_flag(call.relu, [&]<bool kRelu>(Flag<kRelu>) {
      for_flag(result.mask.defined(), [&]<bool kMask>(Flag<kMask>) {
        // A mask exists only together with an addition and a ReLU. Other combinations would be compiled for
        // nothing.
        if constexpr (!kMask || (kAdd && kRelu)) {
          work.launch(Apply<T, kAdd, kRelu, kMask>{
              .tiling = work.tiling(),
              .channels = channels_of(call.norm.weight, call.norm.bias, result.statistics),
              .x = in<T>(call.x),
              .z = in<T>(call.add),
              .y = out<T>(result.y),
              .mask = out<unsigned char>(result.mask)});
        }
      });
    });
  });
  return result;
}

template <class T>
BatchNormGradients backward_as(const BackwardCall& call) {
  BatchNormGradients found{.x = at::empty_like(call.x, call.x.options(), at::MemoryFormat::ChannelsLast),
                           .add = {},
                           .weight = at::empty_like(call.weight),
                           .bias = at::empty_like(call.bias)};
  const Work<T> work(call.x);
  const Channels channels = channels_of(call.weight, call.bias, call.forward.statistics);
  const bool masks = call.forward.mask.defined();
  const bool second = call.gradient2.defined();
  // d is written only if it is z's gradient or the sum of two. Otherwise the second kernel computes it again.
  const bool keeps = second || masks;
  const at::Tensor kept = keeps ? at::empty_like(found.x) : call.gradient;
  const at::Tensor partial = work.partial();
  const at::Tensor counters = work.counters();
  const at::Tensor coefficients = work.floats(3);
  for_flag(second, [&]<bool kSecond>(Flag<kSecond>) {
    for_flag(call.relu, [&]<bool kRelu>(Flag<kRelu>) {
      for_flag(masks, [&]<bool kMask>(Flag<kMask>) {
        if constexpr (!kMask || kRelu) {
          work.launch(OutputGradients<T, kSecond, kRelu, kMask>{
              .tiling = work.tiling(),
              .sums = {out<float>(partial), out<unsigned>(counters)},
              .channels = channels,
              .dy = in<T>(call.gradient),
              .dy2 = in<T>(call.gradient2),
              .x = in<T>(call.x),
              .mask = in<unsigned char>(call.forward.mask),
              .d = keeps ? out<T>(kept) : nullptr,
              .weight_gradient = out<float>(found.weight),
              .bias_gradient = out<float>(found.bias),
              .coefficients = out<float>(coefficients),
              .own_statistics = call.training});
        }
      });
    });
  });
  for_flag(call.relu && !keeps, [&]<bool kRelu>(Flag<kRelu>) {
    work.launch(InputGradient<T, kRelu>{.tiling = work.tiling(),
                                        .channels = channels,
                                        .d = in<T>(kept),
                                        .x = in<T>(call.x),
                                        .coefficients = in<float>(coefficients),
                                        .dx = out<T>(found.x)});
  });
  // Without an addition z the node ignores it.
  found.add = kept;
  return found;
}

}  // namespace

namespace internal {

BatchNormResult fused_forward(const BatchNormCall& call) {
  return for_type(call.x.scalar_type(), [&](auto like) { return forward_as<decltype(like)>(call); });
}
BatchNormGradients fused_backward(const BackwardCall& call) {
  return for_type(call.x.scalar_type(), [&](auto like) { return backward_as<decltype(like)>(call); });
}

}  // namespace internal
}  // namespace kernels

void prepare_fused_batch_norm(at::ScalarType type, c10::Device device) {
  kernels::for_type(type, [&](auto like) { kernels::prepare<kernels::kBatchNorm, decltype(like)>(device); });
}

}}  // namespace holdfast::v0_2
