#include "holdfast/distributed/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/distributed/internal/c10d_compat.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sums over all dimensions except the channels.
at::Tensor channel_sums(const at::Tensor& x) { return x.sum({0, 2, 3}); }
at::Tensor per_channel(const at::Tensor& values) { return values.view({1, -1, 1, 1}); }

c10::ScalarType computes_in(const at::Tensor& input) {
  // In double only for double; float is enough for sums over a batch.
  return input.scalar_type() == c10::kDouble ? c10::kDouble : c10::kFloat;
}

struct Statistics {
  at::Tensor mean, squares;  // of all ranks; squares: sum of squared deviations from that mean
  at::Tensor count;          // values per channel, a scalar on the device
};

std::int64_t values_per_channel(const at::Tensor& x) { return x.size(1) == 0 ? 0 : x.numel() / x.size(1); }

// One row per rank: count, mean, squares.
at::Tensor gathered(ProcessGroup& group, const at::Tensor& x) {
  const std::int64_t channels = x.size(1);
  const std::int64_t count = values_per_channel(x);
  // A rank without pictures takes part with a count of 0.
  at::Tensor own = at::zeros({2 * channels + 1}, x.options());
  if (count > 0) {
    const at::Tensor mean = channel_sums(x).div_(static_cast<double>(count));
    own.narrow(0, 0, 1).fill_(static_cast<double>(count));
    own.narrow(0, 1, channels).copy_(mean);
    // Deviations from this rank's mean: a sum of plain squares would cancel where the mean is large.
    own.narrow(0, 1 + channels, channels).copy_(channel_sums((x - per_channel(mean)).square_()));
  }
  at::Tensor rows = at::empty({group.world_size() * own.numel()}, x.options());
  group.guard("statistics of a batch norm", [&] { compat::all_gather(*group.c10d(), rows, own)->wait(); });
  return rows.view({group.world_size(), -1});
}

// Chan et al. (1979): merges means and squared deviations without cancellation, in the order of the ranks.
Statistics merged(const at::Tensor& rows, std::int64_t channels) {
  const at::Tensor counts = rows.narrow(1, 0, 1);
  const at::Tensor means = rows.narrow(1, 1, channels);
  const at::Tensor total = counts.sum();
  Statistics all;
  all.count = total;
  all.mean = at::zeros({channels}, rows.options());
  for (std::int64_t r = 0; r < rows.size(0); ++r) all.mean += means[r] * (counts[r] / total);
  all.squares = at::zeros({channels}, rows.options());
  for (std::int64_t r = 0; r < rows.size(0); ++r) {
    all.squares += rows[r].narrow(0, 1 + channels, channels) + counts[r] * (means[r] - all.mean).square();
  }
  return all;
}

// Normalizes with statistics that depend on the inputs of all ranks.
struct Normalize : torch::autograd::Function<Normalize> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, const at::Tensor& mean, const at::Tensor& inverse,
                            const at::Tensor& count, ProcessGroup* group) {
    const at::Tensor x = input.to(mean.scalar_type());
    const at::Tensor scale = weight.defined() ? inverse * weight.to(mean.scalar_type()) : inverse;
    at::Tensor y = (x - per_channel(mean)).mul_(per_channel(scale));
    if (bias.defined()) y.add_(per_channel(bias.to(mean.scalar_type())));
    context->save_for_backward({input, weight, mean, inverse, count});
    // saved_data holds numbers and tensors only. The group outlives the training, so a plain pointer is
    // enough.
    context->saved_data["group"] = reinterpret_cast<std::int64_t>(group);
    return y.to(input.scalar_type());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled()) {
      throw UsageError("a SyncBatchNorm2d has no second derivatives: backward() without create_graph");
    }
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3],
                     &count = saved[4];
    auto* const group = reinterpret_cast<ProcessGroup*>(context->saved_data["group"].toInt());
    const at::Tensor dy = gradients[0].to(mean.scalar_type());
    const at::Tensor deviation = input.to(mean.scalar_type()) - per_channel(mean);
    // Both sums in one tensor: one message instead of two.
    const at::Tensor own = at::cat({channel_sums(dy), channel_sums(dy * deviation)});
    const std::int64_t channels = mean.numel();

    // A copy: weight and bias need this rank's sums, which DataParallel averages later.
    at::Tensor all = own.clone();
    group->guard("gradients of a batch norm", [&] {
      std::vector<at::Tensor> sums{all};
      group->c10d()->allreduce(sums)->wait();
    });
    // The gradient of Ioffe and Szegedy (2015) by the input. Mean and variance depend on the inputs of all
    // ranks, so both sums and the count are those of all.
    const at::Tensor of_mean = all.narrow(0, 0, channels) / count;
    const at::Tensor of_deviation = all.narrow(0, channels, channels) * inverse.square() / count;
    at::Tensor scale = inverse;
    if (weight.defined()) scale = scale * weight.to(mean.scalar_type());
    const at::Tensor dx =
        (dy - per_channel(of_mean) - deviation * per_channel(of_deviation)) * per_channel(scale);

    at::Tensor dw, db;
    if (weight.defined()) {
      dw = (own.narrow(0, channels, channels) * inverse).to(weight.scalar_type());
      db = own.narrow(0, 0, channels).to(weight.scalar_type());
    }
    return {dx.to(input.scalar_type()), dw, db, {}, {}, {}, {}};
  }
};

}  // namespace

void SyncBatchNorm2dImpl::track(const at::Tensor& mean, const at::Tensor& variance) {
  if (!options.track_running_stats()) return;
  num_batches_tracked += 1;
  if (const std::optional<double> momentum = options.momentum()) {
    running_mean.mul_(1 - *momentum).add_(mean, *momentum);
    running_var.mul_(1 - *momentum).add_(variance, *momentum);
  } else {  // the average of all batches; the count stays on the device
    const at::Tensor factor = num_batches_tracked.to(running_mean.scalar_type()).reciprocal();
    running_mean.lerp_(mean, factor);
    running_var.lerp_(variance, factor);
  }
}

at::Tensor SyncBatchNorm2dImpl::forward(const at::Tensor& input) {
  if (group_ == nullptr || group_->alone() || !is_training()) return BatchNorm2dImpl::forward(input);
  if (input.dim() != 4 || input.size(1) != options.num_features()) {
    throw UsageError("a SyncBatchNorm2d of " + std::to_string(options.num_features()) +
                     " channels takes [N, C, H, W], not a tensor of shape " + c10::str(input.sizes()));
  }
  Statistics all;
  at::Tensor inverse;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor x = input.detach().to(computes_in(input));
    all = merged(gathered(*group_, x), input.size(1));
    // Reads from the device only where this rank's own values are too few.
    if (values_per_channel(x) < 2 && all.count.item<double>() < 2) {
      throw UsageError("a SyncBatchNorm2d needs more than one value per channel over all ranks to train");
    }
    inverse = (all.squares / all.count + options.eps()).rsqrt();
    if (running_mean.defined()) {
      // The unbiased variance, as BatchNorm2d tracks it.
      track(all.mean.to(running_mean.scalar_type()),
            (all.squares / (all.count - 1)).to(running_var.scalar_type()));
    }
  }
  return Normalize::apply(input, weight, bias, all.mean, inverse, all.count, group_);
}

std::size_t synchronize_batch_norms(torch::nn::Module& module, ProcessGroup& group) {
  std::vector<SyncBatchNorm2dImpl*> found;
  const auto look = [&](const std::string& name, torch::nn::Module& at) {
    if (auto* const own = dynamic_cast<SyncBatchNorm2dImpl*>(&at)) {
      found.push_back(own);
    } else if (at.as<torch::nn::BatchNorm1dImpl>() != nullptr ||
               at.as<torch::nn::BatchNorm2dImpl>() != nullptr ||
               at.as<torch::nn::BatchNorm3dImpl>() != nullptr) {
      throw UsageError("'" + name +
                       "' is an ordinary batch norm, which sees this rank's batches alone: make it "
                       "a SyncBatchNorm2d");
    }
  };
  look("the module", module);
  for (const auto& entry : module.named_modules("", /*include_self=*/false))
    look(entry.key(), *entry.value());
  // Only after all were checked: an error leaves the module as it was.
  for (SyncBatchNorm2dImpl* const norm : found) norm->synchronize(&group);
  return found.size();
}

}}  // namespace holdfast::v0_2
