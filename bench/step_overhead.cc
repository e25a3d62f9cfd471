// What a training step pays for being protected when nothing is to be saved: instructions, allocations and
// system calls of one Checkpointer::after_step, for a small model and a large one.
//
//   apt-get install valgrind                   for the instructions (two minutes); the rest needs nothing
//   build/release/bin/bench_step_overhead
//
// Instructions are exact and the same on every run: callgrind counts those inside after_step in a run of many
// steps and in one of few, and the difference is divided by the steps between. Ends with 1 when a goal is
// missed.
#include <ATen/ops/full_like.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "../tests/support/quiet_call.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "shared/callgrind.h"

HOLDFAST_COUNT_ALLOCATIONS

namespace {

using holdfast::bench::TemporaryFolder;
using holdfast::test::KernelEntries;

constexpr int kSmall = 2;    // layers
constexpr int kLarge = 400;  // the tensors of about five ResNet-50
constexpr int kFewSteps = 100;
constexpr int kManySteps = 1100;
constexpr int kMostInstructions = 300;
constexpr char kInside[] =
    "--toggle-collect=holdfast::v0_2::Checkpointer::after_step(holdfast::v0_2::StepReport const&)";

// A schedule, as loops have one.
struct Schedule {
  void save(holdfast::StateWriter& out) const { out.put("position", position); }
  void load(const holdfast::StateReader& in) { position = in.get_int("position"); }
  std::int64_t position = 0;
};

// A model after its first update, and its Checkpointer.
class Run {
 public:
  Run(int layers, const std::string& folder) : optimizer_(made(layers, net_), options()) {
    state_.add("model", *net_);
    state_.add("optimizer", optimizer_);
    state_.add("schedule", schedule_);
    checkpointer_.emplace(state_,
                          holdfast::CheckpointerOptions{.directory = folder,
                                                        .every = {holdfast::SaveEvery(std::chrono::hours(9))},
                                                        .notices = {.hear_signals = false}});
    checkpointer_->resume();
    for (at::Tensor& parameter : net_->parameters()) {
      parameter.mutable_grad() = at::full_like(parameter, 1e-3);
    }
    optimizer_.step();
    for (int i = 0; i < 10; ++i) step();  // the first plans the file
  }
  void step() { checkpointer_->after_step({.loss = 1.0}); }
  std::size_t tensors() { return state_.describe().size(); }

 private:
  static torch::optim::SGDOptions options() { return torch::optim::SGDOptions(0.1).momentum(0.9); }
  static std::vector<at::Tensor> made(int layers, torch::nn::Sequential& net) {
    for (int i = 0; i < layers; ++i) net->push_back(torch::nn::Linear(16, 16));
    return net->parameters();
  }

  torch::nn::Sequential net_;
  torch::optim::SGD optimizer_;
  Schedule schedule_;
  holdfast::TrainState state_;
  std::optional<holdfast::Checkpointer> checkpointer_;
};

struct Cost {
  std::size_t tensors = 0;
  std::optional<double> instructions;
  std::int64_t allocations = 0;
  std::optional<std::int64_t> kernel_entries;
};

Cost count_here(int layers) {
  const TemporaryFolder folder;
  Run run(layers, folder.path());
  Cost cost;
  cost.tensors = run.tensors();
  const std::int64_t allocated = holdfast::test::allocations_here;
  for (int i = 0; i < kManySteps; ++i) run.step();
  cost.allocations = holdfast::test::allocations_here - allocated;
  if (!KernelEntries::prepare()) return cost;
  const std::int64_t before = KernelEntries::count();
  for (int i = 0; i < kManySteps; ++i) {
    KernelEntries::watch();
    run.step();
    KernelEntries::leave();
  }
  cost.kernel_entries = KernelEntries::count() - before;
  return cost;
}

int compare() {
  std::vector<Cost> costs;
  const TemporaryFolder folder;
  for (const int layers : {kSmall, kLarge}) {
    Cost cost = count_here(layers);
    cost.instructions =
        holdfast::bench::instructions_of_one({kInside}, kFewSteps, kManySteps, [&](int steps) {
          const auto run = folder.path() / (std::to_string(layers) + "-" + std::to_string(steps));
          return holdfast::bench::this_program(
              {"steps", std::to_string(layers), std::to_string(steps), run.string()});
        });
    costs.push_back(cost);
  }
  std::printf("after_step with nothing to do\n%12s %14s %14s %14s\n", "tensors", "instructions",
              "allocations", "system calls");
  bool good = true;
  const auto per_step = [](std::int64_t count) { return static_cast<double>(count) / kManySteps; };
  for (const Cost& cost : costs) {
    const std::string instructions =
        cost.instructions ? std::to_string(std::lround(*cost.instructions)) : "?";
    const std::string entries = cost.kernel_entries ? std::to_string(per_step(*cost.kernel_entries)) : "?";
    std::printf("%12zu %14s %14.3f %14.5s\n", cost.tensors, instructions.c_str(), per_step(cost.allocations),
                entries.c_str());
    good = good && cost.instructions.value_or(0) <= kMostInstructions && cost.allocations == 0 &&
           cost.kernel_entries.value_or(0) == 0;
  }
  const bool complete = costs[0].instructions && costs[0].kernel_entries;
  const double more = costs[1].instructions.value_or(0) - costs[0].instructions.value_or(0);
  good = good && more <= 0.01 * kMostInstructions;
  const std::string goal = "<= " + std::to_string(kMostInstructions);
  std::printf("%12s %14s %14s %14s  %s\n", "goal", goal.c_str(), "0", "0",
              !good      ? "MISS"
              : complete ? "PASS"
                         : "kept, as far as it was counted");
  if (!costs[0].instructions) std::printf("instructions: not counted; install valgrind\n");
  if (!costs[0].kernel_entries) std::printf("system calls: not counted; they need x86-64 and Linux 5.11\n");
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    ::setenv("HOLDFAST_LOG", "error", 1);
    if (argc == 5 && std::string(argv[1]) == "steps") {
      Run run(std::atoi(argv[2]), argv[4]);
      for (int i = std::atoi(argv[3]); i > 0; --i) run.step();
      std::_Exit(0);  // what comes after is not of interest, and slow here
    }
    CLI::App app("What one Checkpointer::after_step costs when nothing is to be saved (two minutes)");
    CLI11_PARSE(app, argc, argv);
    return compare();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_step_overhead: %s\n", error.what());
    return 1;
  }
}
