// Splits a module's parameters into group 0 with weight decay and group 1 without. Decay pulls weights
// towards zero, which harms parameters that only shift or scale.
//
//   const auto options = torch::optim::AdamWOptions(3e-4).weight_decay(0.05);
//   holdfast::FusedAdamW optimizer(holdfast::decay_groups(*net, options), torch::optim::AdamWOptions(3e-4));
//
// No decay: parameters with fewer than two dimensions, parameters named "bias", and all parameters of
// torch::nn's norms (BatchNorm, InstanceNorm, GroupNorm, LayerNorm). All others decay: layers, convolutions,
// embeddings.
//
// Errors: none. Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "holdfast/base/export.h"

namespace torch::nn {
class Module;
}

namespace holdfast { inline namespace v0_2 {

struct DecayParameters {
  // Both lists keep the module's order. They include frozen parameters, which have no gradients. A parameter
  // that two modules share appears once, where it comes first.
  std::vector<at::Tensor> decayed, undecayed;
};
HOLDFAST_EXPORT DecayParameters decay_parameters(const torch::nn::Module& module);

// Group 0 gets `options`, group 1 a copy with weight decay 0. A group may be empty. Give the optimizer
// default options without weight decay: from LibTorch 2.12 on, torch::optim's classes (not Holdfast's)
// replace group 1's 0 by theirs.
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

}}  // namespace holdfast::v0_2
