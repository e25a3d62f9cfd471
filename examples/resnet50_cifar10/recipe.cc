#include "recipe.h"

#include <torch/nn/functional/loss.h>

#include <utility>

#include "holdfast/precision/autocast.h"

namespace example {

namespace functional = torch::nn::functional;

Forward::Forward(holdfast::ResNet net, at::Device device, const Options& options)
    : net_(std::move(net)),
      device_(device),
      precision_(options.precision),
      label_smoothing_(options.label_smoothing),
      channels_last_(options.channels_last) {}

at::Tensor Forward::loss(const holdfast::Batch& batch) {
  return functional::cross_entropy(logits(batch), targets(batch),
                                   functional::CrossEntropyFuncOptions().label_smoothing(label_smoothing_));
}

holdfast::Score Forward::score(const holdfast::Batch& batch) {
  const holdfast::AutocastGuard autocast(precision_, device_.type());
  const at::Tensor answers = logits(batch), right = targets(batch);
  const auto sum = functional::CrossEntropyFuncOptions().reduction(torch::kSum);
  return {.correct = answers.argmax(1).eq(right).sum().item<double>(),
          .loss_sum = functional::cross_entropy(answers, right, sum).item<double>()};
}

at::Tensor Forward::logits(const holdfast::Batch& batch) {
  at::Tensor pictures = batch.inputs.to(device_, /*non_blocking=*/true);
  if (channels_last_) pictures = pictures.contiguous(at::MemoryFormat::ChannelsLast);
  return net_->forward(pictures);
}

at::Tensor Forward::targets(const holdfast::Batch& batch) const { return batch.targets.to(device_, true); }

}  // namespace example
