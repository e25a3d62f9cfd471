// A module's parameters in two groups, with weight decay and without: decay pulls weights towards zero, which
// does nothing for what only shifts or scales, and harms it.
//
// No decay: every parameter of fewer than two dimensions (biases, scales and shifts of norms, scalars), every
// parameter named "bias", and everything that a norm of torch::nn holds (BatchNorm, InstanceNorm, GroupNorm,
// LayerNorm of several dimensions). All others decay: weights of layers, convolutions, embeddings.
//
//   holdfast::FusedAdamW optimizer(holdfast::decay_groups(*net, torch::optim::AdamWOptions(3e-4)
//                                                                   .weight_decay(0.05)),
//                                  torch::optim::AdamWOptions(3e-4));
//
// The defaults of the example have no decay beyond the constructor's: from LibTorch 2.12 on, optimizers of
// torch::optim itself (not holdfast/optim's) would give theirs to group 1 in the place of its 0.
//
// Group 0 decays, group 1 does not; both keep the module's order, and frozen parameters (requires_grad off)
// stay in: they have no gradients. A parameter that two modules share is taken where it comes first.
//
// Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

namespace torch::nn {
class Module;
}

namespace holdfast::inline v1 {

struct DecayParameters {
  std::vector<at::Tensor> decayed, undecayed;
};
DecayParameters decay_parameters(const torch::nn::Module& module);

// The options with their weight decay, and the same without. A group may be empty.
template <class Options>
std::vector<torch::optim::OptimizerParamGroup> decay_groups(const torch::nn::Module& module,
                                                            const Options& options) {
  DecayParameters parameters = decay_parameters(module);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(parameters.decayed), std::make_unique<Options>(options));
  auto without = std::make_unique<Options>(options);
  without->weight_decay(0);
  groups.emplace_back(std::move(parameters.undecayed), std::move(without));
  return groups;
}

}  // namespace holdfast::inline v1
