// An ordinary LibTorch trainer with torch::data's DataLoader: pictures of digits (drawn here instead of
// MNIST's), transforms, workers, random order in training, sequential order in the test, a loop over epochs.
// The lines marked "holdfast" make it survive kill -9, power cuts and SIGTERM. All other lines were there.
//
//   torch_dataloader RUN_DIRECTORY [EPOCHS]
#include <torch/data/dataloader.h>
#include <torch/data/datasets/base.h>
#include <torch/data/datasets/map.h>
#include <torch/data/samplers/sequential.h>
#include <torch/data/transforms/stack.h>
#include <torch/data/transforms/tensor.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "holdfast/holdfast.h"  // holdfast

namespace {

// A bar at the height of its digit, in noise.
struct Digits : torch::data::datasets::Dataset<Digits> {
  Digits(std::int64_t count, double shift) : count_(count), shift_(shift) {}
  torch::data::Example<> get(std::size_t index) override {
    const auto number = static_cast<std::int64_t>(index);
    const std::int64_t digit = number * 7 % 10;
    at::Tensor picture = torch::sin(torch::arange(28 * 28) * (12.9898 + shift_ + double(number) * 0.37));
    picture = picture.abs().reshape({1, 28, 28}) * 0.5;
    picture.slice(1, digit * 2 + 4, digit * 2 + 6) += 0.5;
    return {picture, torch::tensor(digit)};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(count_); }

 private:
  std::int64_t count_;
  double shift_;
};

constexpr std::size_t kBatch = 32;

template <class Loader>
double accuracy_of(torch::nn::Sequential& net, Loader& loader) {
  const torch::NoGradGuard no_grad;
  net->eval();
  std::int64_t right = 0, all = 0;
  for (auto& batch : loader) {
    right += net->forward(batch.data).argmax(1).eq(batch.target).sum().template item<std::int64_t>();
    all += batch.target.size(0);
  }
  net->train();
  return double(right) / double(all);
}

int train(const char* directory, std::int64_t epochs) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 5).stride(3)), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Dropout(0.2), torch::nn::Linear(8 * 8 * 8, 10));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.005).momentum(0.9));
  const torch::data::transforms::Normalize<> normalize(0.35, 0.3);
  Digits digits(2000, 0);
  holdfast::EpochOrder order(digits.size().value(), /*seed=*/7);  // holdfast
  auto train_loader =
      torch::data::make_data_loader(digits.map(normalize).map(torch::data::transforms::Stack<>()),
                                    holdfast::TorchSampler(order),  // holdfast: was a RandomSampler
                                    torch::data::DataLoaderOptions(kBatch).workers(2));
  auto test_loader = torch::data::make_data_loader<torch::data::samplers::SequentialSampler>(
      Digits(500, 0.2).map(normalize).map(torch::data::transforms::Stack<>()), kBatch);

  holdfast::TrainState state;                                            // holdfast
  state.add("model", *net);                                              // holdfast
  state.add("optimizer", optimizer);                                     // holdfast
  state.add("data", order);                                              // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory});  // holdfast
  double loss_value = checkpointer.resume().loss;                        // holdfast

  for (const std::int64_t epoch : order.epochs(epochs)) {  // holdfast: was a loop from 0
    for (auto& batch : *train_loader) {
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      loss_value = loss.item<double>();
      if (order.batch() % 20 == 0)
        std::fprintf(stderr, "epoch %ld batch %ld loss %.17g\n", long{epoch}, long{order.batch()},
                     loss_value);
      if (checkpointer.after_step({.loss = loss_value}).stop) return checkpointer.finish();  // holdfast
    }
    std::fprintf(stderr, "epoch %ld accuracy %g\n", long{epoch}, accuracy_of(net, *test_loader));
  }
  const int exit_code = checkpointer.finish();  // holdfast
  std::printf("step=%ld loss=%.17g state=%s\n", long{state.step()}, loss_value,
              holdfast::to_hex(checkpointer.state_digest()).c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: torch_dataloader RUN_DIRECTORY [EPOCHS]\n");
    return static_cast<int>(holdfast::ExitCode::usage);
  }
  try {
    return train(argv[1], argc == 3 ? std::atol(argv[2]) : 5);
  } catch (const holdfast::Error& error) {  // holdfast
    std::fprintf(stderr, "torch_dataloader: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
