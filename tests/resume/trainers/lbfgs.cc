// A fit with LBFGS, which evaluates the loss several times a step, through a closure.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

int train_lbfgs(long steps, const std::string& directory) {
  torch::manual_seed(1);
  const at::Tensor x = torch::rand({64, 2}) * 4 - 2;
  const at::Tensor y = torch::sin(x).sum(1, true);
  torch::nn::Sequential net(torch::nn::Linear(2, 24), torch::nn::Tanh(), torch::nn::Linear(24, 1));
  torch::optim::LBFGS optimizer(net->parameters(),
                                torch::optim::LBFGSOptions(0.3).max_iter(4).history_size(6));
  holdfast::TrainState state;                                                     // holdfast
  state.add("net", *net);                                                         // holdfast
  state.add("optimizer", optimizer);                                              // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long step = 0; step < steps; ++step) {
  for (long step = state.step(); step < steps; ++step) {
    const at::Tensor loss = optimizer.step([&] {
      optimizer.zero_grad();
      at::Tensor error = torch::nn::functional::mse_loss(net->forward(x), y);
      error.backward();
      return error;
    });
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g\n", step, value);
    holdfast::StepReport report{.applied = {{step, 0}}, .loss = value};      // holdfast
    if (checkpointer.after_step(report).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(net, directory + "/net.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int lbfgs(long steps, const std::string& directory) {
  // was: return train_lbfgs(steps, directory);
  return holdfast::run([&] { return train_lbfgs(steps, directory); });
}

}  // namespace trainers
