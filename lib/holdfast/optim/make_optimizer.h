// An optimizer by name, for a program's `--optimizer`:
//
//   auto optimizer = holdfast::make_optimizer("sgd", *net, {.lr = 0.1, .weight_decay = 5e-4});
//
// sgd, adam, adamw, lamb: this library's, an update in a few kernels. torch-sgd, torch-adam, torch-adamw:
// those of torch::optim, whose checkpoints are the same.
//
// Parameters are in one group in the module's order, or, with `decay_all` off, in two (decay_groups.h).
//
// Errors: UsageError for an unknown name, which lists those known, and for options that cannot be.
// Threads: free functions.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

struct OptimizerSettings {
  double lr = 0.1;
  double momentum = 0.9;  // SGD's alone, and so is:
  bool nesterov = false;
  double weight_decay = 0;
  std::tuple<double, double> betas{0.9, 0.999};  // of the others, and so is:
  std::optional<double> eps = std::nullopt;      // default: 1e-8, LAMB 1e-6
  bool decay_all = true;                         // off: neither biases nor norms
};

const std::vector<std::string>& optimizer_names();
std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::string_view name,
                                                        const torch::nn::Module& module,
                                                        const OptimizerSettings& settings);

}  // namespace holdfast::inline v1
