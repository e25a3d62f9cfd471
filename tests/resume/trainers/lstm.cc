// A character language model. The hidden state is carried from batch to batch, and the learning rate is
// divided by hand after an epoch without a better loss.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kCharacters = 20, kWindow = 8, kStreams = 4, kLength = 100;

struct CharacterModel : torch::nn::Module {
  torch::nn::Embedding embedding{register_module("embedding", torch::nn::Embedding(kCharacters, 12))};
  torch::nn::LSTM lstm{register_module("lstm", torch::nn::LSTM(12, 16))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(16, kCharacters))};
};

at::Tensor make_text() {  // time, stream
  return torch::randint(kCharacters, {kLength, kStreams}).cumsum(0).remainder(kCharacters);
}

int train_lstm(long epochs, const std::string& directory) {
  torch::manual_seed(1);
  const at::Tensor text = make_text();
  CharacterModel model;
  double rate = 2, best = 1e9, total = 0;
  at::Tensor hidden, cell;
  torch::optim::SGD optimizer(model.parameters(), rate);
  long epoch = 0, at = 0;                                                         // holdfast
  holdfast::TrainState state;                                                     // holdfast
  state.add("model", model);                                                      // holdfast
  state.add("optimizer", optimizer);                                              // holdfast
  state.value("loop", std::tie(epoch, at, rate, best, total, hidden, cell));      // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long epoch = 0; epoch < epochs; ++epoch) {
  for (; epoch < epochs; ++epoch, at = 0) {
    // was: total = 0, hidden = cell = torch::zeros({1, kStreams, 16});
    if (at == 0) total = 0, hidden = cell = torch::zeros({1, kStreams, 16});
    // was: for (long at = 0; at + kWindow < kLength; at += kWindow) {
    while (at + kWindow < kLength) {
      const auto [output, carried] = model.lstm->forward(
          model.embedding->forward(text.slice(0, at, at + kWindow)), std::tuple(hidden, cell));
      hidden = std::get<0>(carried).detach();
      cell = std::get<1>(carried).detach();
      const at::Tensor loss = torch::nn::functional::cross_entropy(
          model.head->forward(output).flatten(0, 1), text.slice(0, at + 1, at + 1 + kWindow).flatten());
      optimizer.zero_grad();
      loss.backward();
      torch::nn::utils::clip_grad_norm_(model.parameters(), 0.5);
      optimizer.step();
      total += loss.item<double>();
      const double value = loss.item<double>();
      std::printf("epoch %ld at %ld loss %.9g\n", epoch, at, value);
      holdfast::StepReport report{.applied = {{epoch, at += kWindow}}, .loss = value};  // holdfast
      if (checkpointer.after_step(report).stop) return checkpointer.finish();           // holdfast
    }
    if (total >= best) optimizer.param_groups()[0].options().set_lr(rate /= 4);
    best = std::min(best, total);
    std::printf("epoch %ld: %.9g, rate %g\n", epoch, total, rate);
  }
  torch::save(model.parameters(), directory + "/model.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int lstm(long epochs, const std::string& directory) {
  // was: return train_lstm(epochs, directory);
  return holdfast::run([&] { return train_lstm(epochs, directory); });
}

}  // namespace trainers
