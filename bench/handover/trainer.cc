#include "trainer.h"

#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../shared/seconds.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kTellEvery = 0.25;  // seconds
constexpr std::int64_t kLayers = 160;

// Half of the checkpoint; the other half is momentum.
class Weights : public torch::nn::Module {
 public:
  explicit Weights(std::uint64_t bytes) {
    const auto floats = static_cast<std::int64_t>(bytes / 2 / sizeof(float)) / kLayers;
    for (std::int64_t i = 0; i < kLayers; ++i) {
      register_parameter("layer" + std::to_string(i), torch::full({std::max<std::int64_t>(floats, 1)}, 0.5F));
    }
  }
  // The momentum is there from the first update on.
  void update(torch::optim::SGD& optimizer) {
    for (torch::Tensor& parameter : parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
    optimizer.step();
    for (torch::Tensor& parameter : parameters()) parameter.mutable_grad() = torch::Tensor();
  }
};

// Threads that compute beside the training thread.
class OtherThreads {
 public:
  explicit OtherThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) {
        for (; !stop.stop_requested(); ++steps_) sink_ = fixed_arithmetic();
      });
    }
  }
  std::int64_t steps() const { return steps_; }

 private:
  std::atomic<std::int64_t> steps_{0};
  std::atomic<float> sink_{0};
  std::vector<std::jthread> threads_;
};

}  // namespace

std::optional<Told> last_told(const fs::path& file, const std::string& name) {
  std::optional<Told> last;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (lines.eof()) break;  // without its end: still being written
    std::istringstream words(line);
    std::string word;
    Told told;
    if (words >> word >> told.at >> told.value && word == name) last = told;
  }
  return last;
}

fs::path request_beside(const fs::path& told) { return told.native() + ".save"; }

int train(const TrainerOptions& options) {
  std::ofstream file(options.told, std::ios::app);
  file.precision(9);
  const auto tell = [&](const char* name, double at, std::int64_t value) {
    file << name << " " << std::fixed << at << " " << value << std::endl;
  };
  Weights weights(options.state);
  torch::optim::SGD optimizer(weights.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  TrainState state;
  state.add("model", weights);
  state.add("optimizer", optimizer);
  Checkpointer checkpointer(
      state, {.directory = options.directory, .every = {}, .keep = KeepLast{2}, .notices = {.cloud = false}});
  const Resumed resumed = checkpointer.resume();
  tell(kResumed, now(), resumed.step);
  if (resumed.fresh) weights.update(optimizer);
  const OtherThreads others(options.threads - 1);
  std::atomic<float> sink{0};
  double next_look = 0;
  double boundary = 0;
  for (std::int64_t steps = 1;; ++steps) {
    sink = fixed_arithmetic();
    boundary = now();
    const Decision decision =
        checkpointer.after_step({.applied = Cursor{0, resumed.step + steps}, .loss = 1});
    if (steps == 1) tell(kStepped, now(), resumed.step + 1);
    if (decision.stop) break;
    if (now() < next_look) continue;
    next_look = now() + kTellEvery;
    tell(kSteps, now(), steps + others.steps());
    // Nobody restarts it after this code.
    if (!fs::exists(options.told)) return static_cast<int>(ExitCode::usage);
    if (fs::remove(request_beside(options.told))) checkpointer.save();
    if (checkpointer.last_durable().step > resumed.step)
      tell(kSaves, now(), checkpointer.last_durable().step);
  }
  const int code = checkpointer.finish();
  tell(kBoundary, boundary, code);
  tell(kEnded, now(), code);
  return code;
}

}  // namespace holdfast::bench
