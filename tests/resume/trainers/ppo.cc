// Reinforcement learning: proximal policy optimization (Schulman et al., 2017) of a pole on a cart. The
// environment lives on between the updates, and has a random engine of its own.
#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr int kRollout = 24, kPasses = 2;

struct Cart {
  double position = 0, speed = 0, angle = 0.05, spin = 0;
  std::mt19937_64 engine{7};

  at::Tensor seen() const { return torch::tensor({position, speed, angle, spin}, at::kFloat); }
  // Returns the reward.
  double push(long right) {
    const double force = right == 1 ? 1 : -1;
    spin += 0.05 * (9.8 * std::sin(angle) - force) + std::normal_distribution<>(0, 0.01)(engine);
    speed += 0.1 * force, angle += 0.05 * spin, position += 0.05 * speed;
    if (std::abs(angle) < 0.4 && std::abs(position) < 2) return 1;
    position = speed = spin = 0, angle = std::uniform_real_distribution<>(-0.1, 0.1)(engine);
    return -5;
  }
};

int train_ppo(long updates, const std::string& directory) {
  torch::manual_seed(1);
  torch::nn::Sequential policy(torch::nn::Linear(4, 16), torch::nn::Linear(16, 2));
  torch::optim::Adam optimizer(policy->parameters(), torch::optim::AdamOptions(1e-2));
  Cart cart;
  double baseline = 0;
  holdfast::TrainState state;                                                                    // holdfast
  state.add("policy", *policy);                                                                  // holdfast
  state.add("optimizer", optimizer);                                                             // holdfast
  state.value("cart", std::tie(cart.position, cart.speed, cart.angle, cart.spin, cart.engine));  // holdfast
  state.value("baseline", baseline);                                                             // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});                 // holdfast
  checkpointer.resume();                                                                         // holdfast
  // was: for (long update = 0; update < updates; ++update) {
  for (long update = state.step(); update < updates; ++update) {
    std::vector<at::Tensor> seen, actions;
    std::vector<double> returns(kRollout);
    for (double& reward : returns) {
      const at::NoGradGuard no_grad;
      seen.push_back(cart.seen());
      actions.push_back(policy->forward(seen.back()).softmax(-1).multinomial(1));
      reward = cart.push(actions.back().item<long>());
    }
    for (int i = kRollout - 2; i >= 0; --i) returns[i] += 0.95 * returns[i + 1];
    const at::Tensor states = torch::stack(seen), chosen = torch::stack(actions);
    const at::Tensor gains = torch::tensor(returns, at::kFloat).unsqueeze(1) - baseline;
    baseline += 0.1 * gains.mean().item<double>();
    const at::Tensor before = policy->forward(states).log_softmax(-1).gather(1, chosen).detach();
    at::Tensor loss;
    for (int pass = 0; pass < kPasses; ++pass) {
      const at::Tensor ratio = (policy->forward(states).log_softmax(-1).gather(1, chosen) - before).exp();
      loss = -torch::min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean();
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
    }
    const double value = loss.item<double>();
    std::printf("update %ld loss %.9g baseline %.9g\n", update, value, baseline);
    if (checkpointer.after_step({.loss = value}).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(policy, directory + "/policy.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int ppo(long updates, const std::string& directory) {
  // was: return train_ppo(updates, directory);
  return holdfast::run([&] { return train_ppo(updates, directory); });
}

}  // namespace trainers
