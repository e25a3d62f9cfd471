// What the tests of fused optimizers share: parameters of every form, the same gradients for two optimizers,
// and a small program with a checkpoint.
//
// Threads: one thread.
#pragma once

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "holdfast/optim/make_optimizer.h"
#include "holdfast/state/torch_compat.h"
#include "holdfast/state/train_state.h"

namespace holdfast::test {

namespace to = torch::optim;
using Tensors = std::vector<at::Tensor>;

inline at::Tensor leaf(const at::Tensor& values) { return values.detach().requires_grad_(); }

// Odd sizes, memory formats, gaps, none at all; one long enough for threads.
inline Tensors parameters(at::ScalarType type) {
  torch::manual_seed(3);
  const auto random = [&](at::IntArrayRef sizes) { return at::randn(sizes, type); };
  return {leaf(random({1})),
          leaf(random({7})),
          leaf(random({64})),
          leaf(random({5, 3, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast)),
          leaf(random({8, 4, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast)),
          leaf(random({9, 5}).t()),
          leaf(random({6, 10}).narrow(1, 2, 7)),
          leaf(random({0, 3})),
          leaf(random({40'003})),
          leaf(random({13}))};
}

// The same gradients for both, in layouts that are not always the parameters'; every third lacks some.
inline void give_gradients(const Tensors& ours, const Tensors& theirs, int step) {
  for (std::size_t i = 0; i < ours.size(); ++i) {
    at::Tensor gradient = at::randn(ours[i].sizes(), ours[i].options().requires_grad(false));
    if (gradient.dim() == 4 && step % 2 == 1) gradient = gradient.contiguous(at::MemoryFormat::ChannelsLast);
    const bool none = step % 3 == 1 && i % 2 == 1;
    ours[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
    theirs[i].mutable_grad() = none ? at::Tensor() : gradient.clone();
  }
}

template <class Options>
std::vector<to::OptimizerParamGroup> two_groups(const Tensors& all, const Options& first,
                                                const Options& second) {
  const auto middle = all.begin() + 4;
  std::vector<to::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors(all.begin(), middle), std::make_unique<Options>(first));
  groups.emplace_back(Tensors(), std::make_unique<Options>(first));
  groups.emplace_back(Tensors(middle, all.end()), std::make_unique<Options>(second));
  return groups;
}

// torch::optim's own, with the groups' own options in every release.
template <class Optimizer, class Options>
Optimizer torchs(const std::vector<to::OptimizerParamGroup>& groups, const Options& defaults) {
  Optimizer optimizer(groups, defaults);
  compat::keep_options(optimizer, groups);
  return optimizer;
}

template <class State>
State* state_of(to::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

// A net of two layers and its optimizer as the state of a run.
struct Program {
  explicit Program(const std::string& name,
                   const OptimizerSettings& settings = {.lr = 0.05, .weight_decay = 1e-3}) {
    torch::manual_seed(1);
    net->push_back(torch::nn::Linear(6, 7));
    net->push_back(torch::nn::Linear(7, 3));
    use(make_optimizer(name, *net, settings));
  }
  void use(std::unique_ptr<to::Optimizer> made) {
    optimizer = std::move(made);
    state.emplace();
    state->add("model", *net);
    state->add("optimizer", *optimizer);
  }
  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const at::Tensor input = at::randn({4, 6});
      optimizer->zero_grad();
      net->forward(input).square().mean().backward();
      optimizer->step();
      state->advance({});
    }
  }
  torch::nn::Sequential net;
  std::unique_ptr<to::Optimizer> optimizer;
  std::optional<TrainState> state;
};

// What a GPU does, on the CPU: kernels read rate and skip from memory, and counts live there.
template <class Optimizer>
struct Deciding final : Optimizer {
  using Optimizer::Optimizer;
  bool decides_on(at::Device) const override { return true; }
  const std::type_info& described() const override { return typeid(Deciding); }
};

}  // namespace holdfast::test
