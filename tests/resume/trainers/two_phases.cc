// A net that solves a differential equation, u' = cos(t) u: Adam at first, with the loss in half precision and a
// scale of its own, and LBFGS where Adam finds nothing better. An average of the weights is what is used.
#include <ATen/ATen.h>
#include <torch/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kPoints = 64, kRedraw = 8, kGrowth = 9, kPatientSteps = 12;

torch::nn::Sequential make_solution() {
  return torch::nn::Sequential(torch::nn::Linear(1, 24), torch::nn::Tanh(), torch::nn::Linear(24, 1));
}

at::Tensor draw(std::mt19937_64& engine) {
  at::Tensor points = torch::empty({kPoints, 1});
  for (long i = 0; i < kPoints; ++i) points[i] = std::uniform_real_distribution<float>(0, 3)(engine);
  return points;
}

at::Tensor loss_of(torch::nn::Sequential& net, const at::Tensor& points) {
  const at::Tensor t = points.detach().clone().requires_grad_();
  const at::Tensor u = net->forward(t);
  const at::Tensor slope = torch::autograd::grad({u.sum()}, {t}, {}, true, true)[0];
  const at::Tensor start = net->forward(torch::zeros({1, 1})) - 1;
  return (slope - t.cos() * u).square().mean() + start.square().mean();
}

// Divides the gradients by the scale. False if one is not finite.
bool unscale(torch::nn::Sequential& net, double scale) {
  bool finite = true;
  for (at::Tensor& weight : net->parameters()) {
    weight.mutable_grad().div_(scale);
    finite = finite && weight.grad().isfinite().all().item<bool>();
  }
  return finite;
}

void follow(torch::nn::Sequential& average, torch::nn::Sequential& net) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < net->parameters().size(); ++i)
    average->parameters()[i].lerp_(net->parameters()[i], 0.1);
}

int train_two_phases(long steps, const std::string& directory) {
  torch::manual_seed(1);
  torch::nn::Sequential net = make_solution(), average = make_solution();
  torch::optim::Adam adam(net->parameters(), torch::optim::AdamOptions(1e-2));
  double scale = 1 << 18, best = 1e9;
  long step = 0, calm = 0, stale = 0;
  std::mt19937_64 engine(3);
  at::Tensor points;
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));  // holdfast
  holdfast::TrainState state;                                                                 // holdfast
  state.add("net", *net);                                                                     // holdfast
  state.add("average", *average);                                                             // holdfast
  state.add("adam", adam);                                                                    // holdfast
  state.add("lbfgs", lbfgs);                                                                  // holdfast
  state.value("scale", std::tie(scale, calm));                                                // holdfast
  state.value("points", std::tie(points, engine));                                            // holdfast
  state.value("patience", std::tie(best, stale));                                             // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});              // holdfast
  checkpointer.resume();                                                                      // holdfast
  step = state.step();                                                                        // holdfast
  for (; step < steps && stale < kPatientSteps; ++step) {
    if (step % kRedraw == 0) points = draw(engine);
    adam.zero_grad();
    const at::Tensor loss = loss_of(net, points);
    (loss.to(at::kHalf) * scale).backward();  // not finite where the scale is too large
    const bool finite = unscale(net, scale);
    if (finite) {
      adam.step();
      follow(average, net);
    }
    if (!finite) scale /= 2, calm = 0;
    if (finite && ++calm == kGrowth) scale *= 2, calm = 0;
    const double value = loss.item<double>();
    stale = value < best ? 0 : stale + 1;
    best = std::min(best, value);
    std::printf("step %ld loss %.9g scale %g\n", step, value, scale);
    const holdfast::StepReport report{.loss = value, .skipped = !finite};    // holdfast
    if (checkpointer.after_step(report).stop) return checkpointer.finish();  // holdfast
  }
  // was: torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.5).max_iter(4));
  // was: for (; step < steps; ++step) {
  for (; step < steps; ++step) {
    const at::Tensor loss = lbfgs.step([&] {
      lbfgs.zero_grad();
      at::Tensor error = loss_of(net, points);
      error.backward();
      return error;
    });
    follow(average, net);
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g polished\n", step, value);
    if (checkpointer.after_step({.loss = value}).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(average, directory + "/net.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int two_phases(long steps, const std::string& directory) {
  // was: return train_two_phases(steps, directory);
  return holdfast::run([&] { return train_two_phases(steps, directory); });
}

}  // namespace trainers
