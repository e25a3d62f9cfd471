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

}  // namespace

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = {"sgd",       "adam",       "adamw",      "lamb",
                                                 "torch-sgd", "torch-adam", "torch-adamw"};
  return names;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        const torch::nn::Module& module,
                                                        const OptimizerSettings& settings) {
  namespace to = torch::optim;
  const auto sgd = to::SGDOptions(settings.lr)
                       .momentum(settings.momentum)
                       .nesterov(settings.nesterov)
                       .weight_decay(settings.weight_decay);
  const auto adam = with_betas(to::AdamOptions(settings.lr), settings);
  const auto adamw = with_betas(to::AdamWOptions(settings.lr), settings);
  if (name == "sgd") return made<FusedSgd>(module, sgd, settings);
  if (name == "adam") return made<FusedAdam>(module, adam, settings);
  if (name == "adamw") return made<FusedAdamW>(module, adamw, settings);
  if (name == "lamb") return made<Lamb>(module, with_betas(LambOptions(settings.lr), settings), settings);
  if (name == "torch-sgd") return made<to::SGD>(module, sgd, settings);
  if (name == "torch-adam") return made<to::Adam>(module, adam, settings);
  if (name == "torch-adamw") return made<to::AdamW>(module, adamw, settings);
  std::string known;
  for (const std::string& one : optimizer_names()) known += (known.empty() ? "" : ", ") + one;
  throw UsageError("there is no optimizer '" + std::string(name) + "': choose one of " + known);
}

}}  // namespace holdfast::v0_2
