// Two nets with two optimizers, trained against each other: a DCGAN on drawn pictures.
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/random.h>
#include <torch/data/transforms/stack.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <cstdio>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kNoise = 8;
constexpr std::size_t kBatch = 8;

struct Drawings : torch::data::datasets::Dataset<Drawings> {
  torch::data::Example<> get(std::size_t index) override {
    return {torch::sin(torch::arange(64) * (0.1 + 0.02 * double(index))).reshape({1, 8, 8}), torch::ones({})};
  }
  std::optional<std::size_t> size() const override { return 80; }
};

torch::nn::Sequential make_generator() {
  using Up = torch::nn::ConvTranspose2dOptions;
  return torch::nn::Sequential(
      torch::nn::ConvTranspose2d(Up(kNoise, 8, 4)), torch::nn::BatchNorm2d(8), torch::nn::ReLU(),
      torch::nn::ConvTranspose2d(Up(8, 1, 4).stride(2).padding(1)), torch::nn::Tanh());
}

torch::nn::Sequential make_discriminator() {
  using Down = torch::nn::Conv2dOptions;
  return torch::nn::Sequential(torch::nn::Conv2d(Down(1, 8, 4).stride(2).padding(1)), torch::nn::LeakyReLU(),
                               torch::nn::BatchNorm2d(8), torch::nn::Conv2d(Down(8, 1, 4)));
}

int train_gan(long epochs, const std::string& directory) {
  torch::manual_seed(1);
  torch::nn::Sequential generator = make_generator(), discriminator = make_discriminator();
  torch::optim::Adam generator_steps(generator->parameters(), torch::optim::AdamOptions(2e-3));
  torch::optim::Adam discriminator_steps(discriminator->parameters(), torch::optim::AdamOptions(2e-3));
  auto data = Drawings().map(torch::data::transforms::Stack<>());
  const auto judge = [&](const at::Tensor& pictures, double label) {
    const at::Tensor verdicts = discriminator->forward(pictures).flatten();
    return torch::nn::functional::binary_cross_entropy_with_logits(verdicts,
                                                                   torch::full_like(verdicts, label));
  };
  holdfast::EpochOrder order(data.size().value(), /*seed=*/1);  // holdfast
  // was: auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(data, kBatch);
  auto loader = torch::data::make_data_loader(data, holdfast::TorchSampler(order), kBatch);
  holdfast::TrainState state;                                                     // holdfast
  state.add("generator", *generator);                                             // holdfast
  state.add("discriminator", *discriminator);                                     // holdfast
  state.add("generator_steps", generator_steps);                                  // holdfast
  state.add("discriminator_steps", discriminator_steps);                          // holdfast
  state.add("data", order);                                                       // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long epoch = 0; epoch < epochs; ++epoch) {
  for (const long epoch : order.epochs(epochs)) {
    for (auto& batch : *loader) {
      const at::Tensor fakes = generator->forward(torch::randn({batch.data.size(0), kNoise, 1, 1}));
      discriminator_steps.zero_grad();
      const at::Tensor found = judge(batch.data, 1) + judge(fakes.detach(), 0);
      found.backward();
      discriminator_steps.step();
      generator_steps.zero_grad();
      const at::Tensor fooled = judge(fakes, 1);
      fooled.backward();
      generator_steps.step();
      const double loss = (found + fooled).item<double>();
      std::printf("epoch %ld loss %.9g\n", epoch, loss);
      if (checkpointer.after_step({.loss = loss}).stop) return checkpointer.finish();  // holdfast
    }
  }
  torch::save(generator, directory + "/generator.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int gan(long epochs, const std::string& directory) {
  // was: return train_gan(epochs, directory);
  return holdfast::run([&] { return train_gan(epochs, directory); });
}

}  // namespace trainers
