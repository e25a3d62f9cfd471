// A small transformer with causal masks as buffers, tied weights, batches from random places of the text, and
// a learning rate that follows a cosine.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdio>
#include <limits>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kTokens = 24, kContext = 8, kWidth = 16, kHeads = 2, kEpoch = 10;

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm first{register_module("first", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}))};
  torch::nn::LayerNorm second{register_module("second", torch::nn::LayerNorm(std::vector<int64_t>{kWidth}))};
  torch::nn::Linear qkv{register_module("qkv", torch::nn::Linear(kWidth, 3 * kWidth))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(kWidth, 2 * kWidth))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(2 * kWidth, kWidth))};
  torch::nn::Dropout dropout{register_module("dropout", torch::nn::Dropout(0.1))};
  at::Tensor mask{register_buffer("mask", torch::full({kContext, kContext}, -1e9).triu(1))};

  at::Tensor forward(const at::Tensor& x) {
    const auto parts =
        qkv->forward(first->forward(x)).reshape({-1, kContext, 3 * kHeads, kWidth / kHeads}).chunk(3, 2);
    const at::Tensor scores = parts[0].transpose(1, 2).matmul(parts[1].permute({0, 2, 3, 1})) + mask;
    const at::Tensor mixed = scores.softmax(-1).matmul(parts[2].transpose(1, 2)).transpose(1, 2).flatten(2);
    const at::Tensor sum = x + dropout->forward(mixed);
    return sum + down->forward(torch::gelu(up->forward(second->forward(sum))));
  }
};
TORCH_MODULE(Block);

struct Gpt : torch::nn::Module {
  torch::nn::Embedding tokens{register_module("tokens", torch::nn::Embedding(kTokens, kWidth))};
  torch::nn::Embedding places{register_module("places", torch::nn::Embedding(kContext, kWidth))};
  torch::nn::ModuleList blocks{register_module("blocks", torch::nn::ModuleList(Block(), Block()))};
  torch::nn::Linear head{
      register_module("head", torch::nn::Linear(torch::nn::LinearOptions(kWidth, kTokens).bias(false)))};
  Gpt() { head->weight = tokens->weight; }

  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = tokens->forward(input) + places->forward(torch::arange(kContext));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head->forward(x);
  }
};

int train_gpt(long epochs, const std::string& directory) {
  torch::manual_seed(1);
  const at::Tensor text = torch::randint(kTokens, {1000}).cumsum(0).remainder(kTokens);
  Gpt model;
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-2));
  const long steps = epochs * kEpoch;
  holdfast::TrainState state;                                                     // holdfast
  state.add("model", model);                                                      // holdfast
  state.add("optimizer", optimizer);                                              // holdfast
  state.rates_follow_position();                                                  // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long step = 0; step < steps; ++step) {
  for (long step = state.step(); step < steps; ++step) {
    const at::Tensor places = torch::randint(text.size(0) - kContext, {4, 1}) + torch::arange(kContext);
    optimizer.param_groups()[0].options().set_lr(5e-3 * (1 + std::cos(3.14 * double(step) / 1000)));
    optimizer.zero_grad();
    const at::Tensor loss = torch::nn::functional::cross_entropy(
        model.forward(text.index({places})).flatten(0, 1), text.index({places + 1}).flatten());
    loss.backward();
    optimizer.step();
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g\n", step, value);
    holdfast::StepReport report{.applied = {{step / kEpoch, step % kEpoch}}, .loss = value};  // holdfast
    if (checkpointer.after_step(report).stop) return checkpointer.finish();                   // holdfast
  }
  torch::save(model.parameters(), directory + "/model.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int gpt(long epochs, const std::string& directory) {
  // was: return train_gpt(epochs, directory);
  return holdfast::run([&] { return train_gpt(epochs, directory); });
}

}  // namespace trainers
