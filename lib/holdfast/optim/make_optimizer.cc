#include "holdfast/optim/make_optimizer.h"

#include <torch/nn/module.h>

#include "holdfast/base/error.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/state/torch_compat.h"

namespace holdfast { inline namespace v0_2 {
namespace {

template <class Optimizer, class Options>
std::unique_ptr<torch::optim::Optimizer> made(const torch::nn::Module& module, const Options& options,
                                              const OptimizerSettings& settings) {
  if (settings.decay_all) return std::make_unique<Optimizer>(module.parameters(), options);
  const auto groups = decay_groups(module, options);
  auto optimizer = std::make_unique<Optimizer>(groups, options);
  // From LibTorch 2.12 on, a group's option that still has its constructor's value becomes the default's.
  compat::keep_options(*optimizer, groups);
  return optimizer;
}

template <class Options>
Options with_betas(Options options, const OptimizerSettings& settings) {
  options.betas(settings.betas).weight_decay(settings.weight_decay);
  if (settings.eps) options.eps(*settings.eps);
  return options;
}

namespace to = torch::optim;

to::SGDOptions sgd(const OptimizerSettings& settings) {
  return to::SGDOptions(settings.lr)
      .momentum(settings.momentum)
      .nesterov(settings.nesterov)
      .weight_decay(settings.weight_decay);
}

template <class Optimizer>
std::unique_ptr<to::Optimizer> with_sgd(const torch::nn::Module& module, const OptimizerSettings& settings) {
  return made<Optimizer>(module, sgd(settings), settings);
}
template <class Optimizer, class Options>
std::unique_ptr<to::Optimizer> with_moments(const torch::nn::Module& module,
                                            const OptimizerSettings& settings) {
  return made<Optimizer>(module, with_betas(Options(settings.lr), settings), settings);
}

struct NamedOptimizer {
  std::string_view name;
  std::unique_ptr<to::Optimizer> (*make)(const torch::nn::Module&, const OptimizerSettings&);
};
constexpr NamedOptimizer kOptimizers[] = {{"sgd", &with_sgd<FusedSgd>},
                                          {"adam", &with_moments<FusedAdam, to::AdamOptions>},
                                          {"adamw", &with_moments<FusedAdamW, to::AdamWOptions>},
                                          {"lamb", &with_moments<Lamb, LambOptions>},
                                          {"torch-sgd", &with_sgd<to::SGD>},
                                          {"torch-adam", &with_moments<to::Adam, to::AdamOptions>},
                                          {"torch-adamw", &with_moments<to::AdamW, to::AdamWOptions>}};

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const NamedOptimizer& row : kOptimizers) all.emplace_back(row.name);
    return all;
  }();
  return names;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        const torch::nn::Module& module,
                                                        const OptimizerSettings& settings) {
  std::string known;
  for (const NamedOptimizer& row : kOptimizers) {
    if (row.name == name) return row.make(module, settings);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw UsageError("there is no optimizer '" + std::string(name) + "': choose one of " + known);
}

}}  // namespace holdfast::v0_2
