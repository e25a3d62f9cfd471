// Fine-tuning: the body is frozen while a new head is trained, and thawed from the second epoch on. The
// average of the weights is a model of its own.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kFrozen = 12;

struct TunedImpl : torch::nn::Module {
  torch::nn::Sequential body{register_module(
      "body",
      torch::nn::Sequential(torch::nn::Linear(6, 12), torch::nn::BatchNorm1d(12), torch::nn::ReLU()))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(12, 3))};
  at::Tensor forward(const at::Tensor& x) { return head->forward(body->forward(x)); }
};
TORCH_MODULE(Tuned);

void freeze(TunedImpl& model, bool frozen) {
  for (at::Tensor& parameter : model.body->parameters()) parameter.set_requires_grad(!frozen);
  model.body->train(!frozen);
}

int train_frozen(long epochs, const std::string& directory) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({48, 6}), y = torch::randint(3, {48}, at::kLong);
  Tuned model, average;
  freeze(*model, true);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  holdfast::TrainState state;                                                     // holdfast
  state.add("model", *model);                                                     // holdfast
  state.add("average", *average);                                                 // holdfast
  state.add("optimizer", optimizer);                                              // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long step = 0; step < epochs * kFrozen; ++step) {
  for (long step = state.step(); step < epochs * kFrozen; ++step) {
    if (step == kFrozen) freeze(*model, false);
    const at::Tensor rows = torch::randint(x.size(0), {8}, at::kLong);
    optimizer.zero_grad();
    const at::Tensor loss =
        torch::nn::functional::cross_entropy(model->forward(x.index({rows})), y.index({rows}));
    loss.backward();
    optimizer.step();
    const at::NoGradGuard no_grad;
    for (const auto& parameter : average->named_parameters())
      parameter.value().lerp_(model->named_parameters()[parameter.key()], 0.1);
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g\n", step, value);
    holdfast::StepReport report{.applied = {{step / kFrozen, step % kFrozen}}, .loss = value};  // holdfast
    if (checkpointer.after_step(report).stop) return checkpointer.finish();                     // holdfast
  }
  torch::save(average, directory + "/average.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int frozen(long epochs, const std::string& directory) {
  // was: return train_frozen(epochs, directory);
  return holdfast::run([&] { return train_frozen(epochs, directory); });
}

}  // namespace trainers
