// Deep Q-learning (Mnih et al., 2015) of a game of pictures: a ball falls, and a paddle has to be under it. The
// pictures of the last thousands of moves are kept in a ring, and a target net follows from time to time.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kCells = 12, kRing = 8192, kReplayed = 16, kMoves = 4, kFollow = 20, kWarmUp = 64;

struct Catch {
  long ball = 3, height = 0, paddle = kCells / 2;
  std::mt19937_64 engine{5};

  at::Tensor picture() const {
    at::Tensor pixels = torch::zeros({kCells, kCells}, at::kByte);
    pixels[height][ball] = pixels[kCells - 1][paddle] = 255;
    return pixels.flatten();
  }
  // Returns the reward, which is 0 until the ball is down.
  float move(long action) {
    paddle = std::clamp(paddle + action - 1, 0L, kCells - 1);
    if (++height < kCells - 1) return 0;
    const float reward = std::abs(paddle - ball) <= 1 ? 1 : -1;
    height = 0, ball = long(engine() % kCells);
    return reward;
  }
};

struct Ring {
  at::Tensor before = torch::zeros({kRing, kCells*kCells}, at::kByte), after = torch::zeros_like(before);
  at::Tensor actions = torch::zeros({kRing, 1}, at::kLong), rewards = torch::zeros({kRing, 1});
  long next = 0, filled = 0;

  void put(const at::Tensor& picture, long action, float reward, const at::Tensor& following) {
    before[next] = picture, actions[next] = action, rewards[next] = reward, after[next] = following;
    next = (next + 1) % kRing, filled = std::min(filled + 1, kRing);
  }
};

torch::nn::Sequential make_values() {
  return torch::nn::Sequential(torch::nn::Linear(kCells * kCells, 32), torch::nn::ReLU(),
                               torch::nn::Linear(32, 3));
}

at::Tensor as_input(const at::Tensor& pictures) { return pictures.to(at::kFloat) / 255; }

void copy_weights(torch::nn::Sequential& from, torch::nn::Sequential& to) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to->parameters().size(); ++i) to->parameters()[i].copy_(from->parameters()[i]);
}

int train_dqn(long updates, const std::string& directory) {
  torch::manual_seed(1);
  torch::nn::Sequential net = make_values(), target = make_values();
  copy_weights(net, target);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(2e-3));
  Catch game;
  Ring ring;
  std::mt19937_64 dice(11);
  double epsilon = 1, score = 0;
  const auto play = [&] {
    const at::NoGradGuard no_grad;
    const at::Tensor picture = game.picture();
    const bool explores = std::uniform_real_distribution<>()(dice) < epsilon;
    const long action = explores ? long(dice() % 3) : net->forward(as_input(picture)).argmax().item<long>();
    const float reward = game.move(action);
    ring.put(picture, action, reward, game.picture());
    score += 0.02 * (reward - score);
  };
  holdfast::TrainState state;                                                          // holdfast
  state.add("net", *net);                                                              // holdfast
  state.add("target", *target);                                                        // holdfast
  state.add("optimizer", optimizer);                                                   // holdfast
  state.value("pictures", std::tie(ring.before, ring.after));                          // holdfast
  state.value("moves", std::tie(ring.actions, ring.rewards, ring.next, ring.filled));  // holdfast
  state.value("game", std::tie(game.ball, game.height, game.paddle, game.engine));     // holdfast
  state.value("player", std::tie(dice, epsilon, score));                               // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});       // holdfast
  checkpointer.resume();                                                               // holdfast
  while (ring.filled < kWarmUp) play();
  // was: for (long update = 0; update < updates; ++update) {
  for (long update = state.step(); update < updates; ++update) {
    for (long move = 0; move < kMoves; ++move) play();
    const at::Tensor rows = torch::randint(ring.filled, {kReplayed}, at::kLong);
    const at::Tensor rewards = ring.rewards.index({rows});
    const at::Tensor later =
        target->forward(as_input(ring.after.index({rows}))).amax(1, true).detach() * (rewards == 0);
    const at::Tensor loss = torch::nn::functional::smooth_l1_loss(
        net->forward(as_input(ring.before.index({rows}))).gather(1, ring.actions.index({rows})),
        rewards + 0.95 * later);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    epsilon = std::max(0.05, 0.99 * epsilon);
    if (update % kFollow == kFollow - 1) copy_weights(net, target);
    const double value = loss.item<double>();
    std::printf("update %ld loss %.9g epsilon %.4f score %.4f\n", update, value, epsilon, score);
    if (checkpointer.after_step({.loss = value}).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(net, directory + "/net.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int dqn(long updates, const std::string& directory) {
  // was: return train_dqn(updates, directory);
  return holdfast::run([&] { return train_dqn(updates, directory); });
}

}  // namespace trainers
