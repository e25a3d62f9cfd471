// A head over fixed features: 8-bit numbers with a scale, as of a quantised table, and complex coefficients
// of a filter. Both are buffers that the training changes.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/rmsprop.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kRows = 32, kFeatures = 16;

struct Filtered : torch::nn::Module {
  at::Tensor table{register_buffer("table", torch::randint(-127, 128, {kRows, kFeatures}).to(at::kChar))};
  at::Tensor scale{register_buffer("scale", torch::full({}, 0.01))};
  at::Tensor filter{register_buffer("filter", torch::ones({kFeatures / 2 + 1}, at::kComplexFloat))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(kFeatures, 1))};

  at::Tensor forward(const at::Tensor& rows) {
    const at::Tensor features = table.index({rows}).to(at::kFloat) * scale;
    return head->forward(at::fft_irfft(at::fft_rfft(features) * filter, kFeatures));
  }
  // Moves the filter's phase, and rounds the table anew at a larger scale.
  void drift() {
    const at::NoGradGuard no_grad;
    filter.mul_(
        at::polar(torch::full({kFeatures / 2 + 1}, 0.999F), torch::arange(kFeatures / 2 + 1) * 0.01F));
    table.copy_((table.to(at::kFloat) * 0.99 + torch::randn({kRows, kFeatures})).round().clamp(-127, 127));
    scale.mul_(1.001);
  }
};

int train_buffers(long steps, const std::string& directory) {
  torch::manual_seed(1);
  Filtered model;
  const at::Tensor wanted = torch::randn({kRows, 1});
  torch::optim::RMSprop optimizer(model.parameters(), torch::optim::RMSpropOptions(1e-3).centered(true));
  holdfast::TrainState state;                                                     // holdfast
  state.add("model", model);                                                      // holdfast
  state.add("optimizer", optimizer);                                              // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long step = 0; step < steps; ++step) {
  for (long step = state.step(); step < steps; ++step) {
    const at::Tensor rows = torch::randint(kRows, {8}, at::kLong);
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::mse_loss(model.forward(rows), wanted.index({rows}));
    loss.backward();
    optimizer.step();
    model.drift();
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g\n", step, value);
    holdfast::StepReport report{.applied = {{0, 8 * step}}, .loss = value};  // holdfast
    if (checkpointer.after_step(report).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(model.head, directory + "/head.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int buffers(long steps, const std::string& directory) {
  // was: return train_buffers(steps, directory);
  return holdfast::run([&] { return train_buffers(steps, directory); });
}

}  // namespace trainers
