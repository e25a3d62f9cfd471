// An ordinary LibTorch training program with its own model, its own data set and torch::optim::AdamW. The
// lines marked "holdfast" make it survive kill -9, power cuts and SIGTERM. All other lines were there before.
//
//   own_loop RUN_DIRECTORY [STEPS]
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "holdfast/holdfast.h"  // holdfast

namespace {

// Points of a noisy spiral with three arms; the network learns to which arm a point belongs.
struct Spirals {
  struct Sample {
    at::Tensor point;
    std::int64_t arm;
  };

  std::int64_t size() const { return points.size(0); }
  Sample get(std::int64_t index) const { return {points[index], arms[index].item<std::int64_t>()}; }

  explicit Spirals(std::int64_t count) {
    arms = torch::arange(count).remainder(3);
    const at::Tensor radius = torch::linspace(0.1, 1, count);
    const at::Tensor noise = torch::sin(torch::arange(count) * 12.9898) * 0.1;
    const at::Tensor angle = radius * 5 + arms * 2.0944 + noise;
    points = torch::stack({radius * torch::cos(angle), radius * torch::sin(angle)}, 1);
  }
  at::Tensor points, arms;
};

int train(const char* directory, std::int64_t steps) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                            torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 3));
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  holdfast::Loader loader(Spirals(3000), {.batch_size = 64, .seed = 7});  // holdfast: was a DataLoader

  holdfast::TrainState state;         // holdfast
  state.add("model", *net);           // holdfast
  state.add("optimizer", optimizer);  // holdfast
  state.add("data", loader);          // holdfast
  holdfast::Checkpointer checkpointer(
      state, {.directory = directory, .every = {std::chrono::seconds(10)}});  // holdfast
  double loss_value = checkpointer.resume().loss;                             // holdfast

  while (state.step() < steps) {
    const auto batch = loader.next();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(batch->inputs), batch->targets);
    optimizer.zero_grad();
    loss.backward();
    checkpointer.before_update();  // holdfast
    optimizer.step();
    loss_value = loss.item<double>();
    if (checkpointer.after_step({.applied = batch->cursor, .loss = loss_value}).stop) break;  // holdfast
    if (state.step() % 100 == 0)
      std::fprintf(stderr, "step %ld loss %.17g\n", long{state.step()}, loss_value);
  }
  const int exit_code = checkpointer.finish();  // holdfast
  std::printf("step=%ld loss=%.17g state=%s\n", long{state.step()}, loss_value,
              holdfast::to_hex(checkpointer.state_digest()).c_str());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: own_loop RUN_DIRECTORY [STEPS]\n");
    return static_cast<int>(holdfast::ExitCode::usage);
  }
  const std::int64_t steps = argc == 3 ? std::atol(argv[2]) : 2000;
  return holdfast::run([&] { return train(argv[1], steps); });  // holdfast
}
