#include "rank.h"

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/state/train_state.h"

namespace holdfast::bench {
namespace {

constexpr std::int64_t kLayers = 16;

// Half of the checkpoint; the other half is momentum.
class Weights : public torch::nn::Module {
 public:
  explicit Weights(std::int64_t bytes) {
    const std::int64_t floats = bytes / 2 / static_cast<std::int64_t>(sizeof(float)) / kLayers;
    for (std::int64_t i = 0; i < kLayers; ++i) {
      register_parameter("layer" + std::to_string(i), torch::full({floats}, static_cast<float>(i)));
    }
  }
};

// A program in another PID namespace has another number there.
std::string own_number() { return std::filesystem::read_symlink("/proc/self"); }

}  // namespace

void serve_rank(const std::filesystem::path& run, std::int64_t bytes) {
  ProcessGroup group;
  Agreement agreement(group);
  Weights weights(bytes);
  torch::optim::SGD optimizer(weights.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TrainState state;
  state.add("model", weights);
  state.add("optimizer", optimizer);
  Checkpointer checkpointer(
      state, {.directory = run, .every = {}, .notices = {.cloud = false}, .ranks = {.channel = &agreement}});
  std::printf("here %s\n", own_number().c_str());
  std::fflush(stdout);
  bool finished = false;
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "resume") {
      const auto began = std::chrono::steady_clock::now();
      const Resumed resumed = checkpointer.resume();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      std::printf("%lld %.4f\n", static_cast<long long>(resumed.step), took.count());
    } else {
      for (torch::Tensor& parameter : weights.parameters()) {
        parameter.mutable_grad() = torch::ones_like(parameter);
      }
      optimizer.step();
      checkpointer.after_step({});
      finished = true;
      std::printf("saved %d\n", checkpointer.finish());
    }
    std::fflush(stdout);
  }
  if (!finished) checkpointer.finish();
  group.leave();
}

}  // namespace holdfast::bench
