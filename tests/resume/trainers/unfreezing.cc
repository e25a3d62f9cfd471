// Fine-tuning: a head is trained on a frozen trunk, and the trunk joins the optimizer at an epoch. The rates
// fall where the validation finds nothing better, and the best weights are kept.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kSamples = 40, kAtOnce = 8, kUnfreeze = 3, kPatientEpochs = 1;

struct ClassifierImpl : torch::nn::Module {
  torch::nn::Sequential trunk{register_module(
      "trunk", torch::nn::Sequential(torch::nn::Linear(10, 24), torch::nn::BatchNorm1d(24), torch::nn::ReLU(),
                                     torch::nn::Linear(24, 16), torch::nn::ReLU()))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.2))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, 4))};

  at::Tensor forward(const at::Tensor& x) { return head->forward(dropout->forward(trunk->forward(x))); }
  void freeze(bool frozen) {
    for (at::Tensor& parameter : trunk->parameters()) parameter.set_requires_grad(!frozen);
  }
  // A frozen trunk also keeps the means of its BatchNorm.
  void begin_epoch() {
    train();
    trunk->train(trunk->parameters()[0].requires_grad());
  }
};
TORCH_MODULE(Classifier);

double validate(Classifier& net, const at::Tensor& x, const at::Tensor& y) {
  const at::NoGradGuard no_grad;
  net->eval();
  return torch::nn::functional::cross_entropy(net->forward(x), y).item<double>();
}

int train_unfreezing(long epochs, const std::string& directory) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({2 * kSamples, 10});
  const at::Tensor y = x.matmul(torch::randn({10, 4})).argmax(1);
  Classifier net;
  net->freeze(true);
  torch::optim::SGD optimizer(net->head->parameters(), torch::optim::SGDOptions(0.3).momentum(0.9));
  double best = 1e9;
  long bad_epochs = 0;
  std::vector<at::Tensor> best_weights;
  long epoch = 0, at = 0;                                                         // holdfast
  at::Tensor order;                                                               // holdfast
  holdfast::TrainState state;                                                     // holdfast
  state.add("net", *net);                                                         // holdfast
  state.add("optimizer", optimizer, {.may_append_groups = true});                 // holdfast
  state.value("loop", std::tie(epoch, at, order));                                // holdfast
  state.value("plateau", std::tie(best, bad_epochs));                             // holdfast
  state.value("best_weights", best_weights);                                      // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long epoch = 0; epoch < epochs; ++epoch) {
  for (; epoch < epochs; ++epoch, at = 0) {
    // was: if (epoch == kUnfreeze) {
    if (epoch == kUnfreeze && at == 0) {
      net->freeze(false);
      optimizer.add_param_group(
          {net->trunk->parameters(),
           std::make_unique<torch::optim::SGDOptions>(torch::optim::SGDOptions(0.05).momentum(0.9))});
    }
    net->begin_epoch();
    // was: const at::Tensor order = torch::randperm(kSamples);
    if (at == 0) order = torch::randperm(kSamples);
    // was: for (long at = 0; at < kSamples; at += kAtOnce) {
    while (at < kSamples) {
      const at::Tensor rows = order.slice(0, at, at + kAtOnce);
      optimizer.zero_grad();
      const at::Tensor loss =
          torch::nn::functional::cross_entropy(net->forward(x.index({rows})), y.index({rows}));
      loss.backward();
      optimizer.step();
      const double value = loss.item<double>();
      std::printf("epoch %ld at %ld loss %.9g\n", epoch, at, value);
      holdfast::StepReport report{.applied = {{epoch, at += kAtOnce}}, .loss = value};  // holdfast
      if (checkpointer.after_step(report).stop) return checkpointer.finish();           // holdfast
    }
    const double found = validate(net, x.slice(0, kSamples), y.slice(0, kSamples));
    if (found < best) {
      best = found, bad_epochs = 0, best_weights.clear();
      for (const at::Tensor& weight : net->parameters()) best_weights.push_back(weight.detach().clone());
    } else if (++bad_epochs > kPatientEpochs) {
      bad_epochs = 0;
      for (auto& group : optimizer.param_groups()) group.options().set_lr(group.options().get_lr() * 0.3);
    }
    std::printf("epoch %ld: %.9g, best %.9g, rate %g\n", epoch, found, best,
                optimizer.param_groups()[0].options().get_lr());
  }
  torch::save(best_weights, directory + "/best.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int unfreezing(long epochs, const std::string& directory) {
  // was: return train_unfreezing(epochs, directory);
  return holdfast::run([&] { return train_unfreezing(epochs, directory); });
}

}  // namespace trainers
