// Makes an optimizer by name, for a program's `--optimizer`:
//
//   auto optimizer = holdfast::make_optimizer("sgd", *net, {.lr = 0.1, .weight_decay = 5e-4});
//
// sgd, adam, adamw, lamb: Holdfast's fused classes. torch-sgd, torch-adam, torch-adamw: torch::optim's, whose
// checkpoints are interchangeable with the fused ones.
//
// Errors: UsageError for an unknown name (the message lists the known ones) and for impossible options.
// Threads: free functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "holdfast/base/export.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

struct OptimizerSettings {
  // Base learning rate.
  double lr = 0.1;
  // SGD only.
  double momentum = 0.9;
  // SGD only. Requires momentum.
  bool nesterov = false;
  // Factor of the weight decay: L2 for SGD and Adam, decoupled for AdamW and LAMB.
  double weight_decay = 0;
  // Decay of the two moments. Not used by SGD.
  std::tuple<double, double> betas{0.9, 0.999};
  // Added to the denominator. Not used by SGD. Empty: 1e-8; LAMB 1e-6.
  std::optional<double> eps = std::nullopt;
  // True: one group in the module's order, all with weight decay. False: biases and norms have none
  // (decay_groups.h).
  bool decay_all = true;
};

HOLDFAST_EXPORT const std::vector<std::string>& optimizer_names();
HOLDFAST_EXPORT std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                                        const torch::nn::Module& module,
                                                                        const OptimizerSettings& settings);

}}  // namespace holdfast::v0_2
