// What an update costs: this library's fused optimizers against torch::optim's, for the 161 tensors of
// ResNet-50 and for 161 tiny ones; and the instructions of a whole training step of a tiny network, under
// Trainer with FusedSgd against a plain loop with torch::optim::SGD.
//
//   apt-get install valgrind                   for the instructions (minutes); the rest needs nothing
//   build/release/bin/bench_optimizer [--threads N] [--repetitions N] [--no-instructions]
//
// The optimizers take turns; printed are medians. Instructions are callgrind's: those of a run of many steps
// less those of one of few, divided by the steps between. The plain loop trains on one ready batch, Trainer
// gets it from its loader, checks for interruptions and counts its progress. Ends with 1 when a goal is
// missed.
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/optim/fused_adam.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/train/trainer.h"
#include "shared/callgrind.h"
#include "shared/median.h"

namespace {

namespace to = torch::optim;
using holdfast::bench::instructions_of_one;
using holdfast::bench::median;
using holdfast::bench::TemporaryFolder;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t kTiny = 64;  // elements
constexpr int kFewSteps = 100;
constexpr int kManySteps = 600;
constexpr double kMostInstructions = 0.85;

// The parameters of ResNet-50 in order: convolutions, scales and shifts, the last layer.
std::vector<std::vector<std::int64_t>> resnet50() {
  std::vector<std::vector<std::int64_t>> shapes;
  const auto convolution = [&](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    shapes.push_back({out, in, kernel, kernel});
    shapes.push_back({out});
    shapes.push_back({out});
  };
  convolution(3, 64, 7);
  std::int64_t in = 64;
  const int blocks[] = {3, 4, 6, 3};
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t width = std::int64_t{64} << stage;
    for (int block = 0; block < blocks[stage]; ++block) {
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, 4 * width, 1);
      if (block == 0) convolution(in, 4 * width, 1);
      in = 4 * width;
    }
  }
  shapes.push_back({1000, in});
  shapes.push_back({1000});
  return shapes;
}

Tensors parameters(bool tiny) {
  Tensors made;
  for (const auto& shape : resnet50()) {
    made.push_back((tiny ? at::randn({kTiny}) : at::randn(shape)).requires_grad_());
    made.back().mutable_grad() = at::randn_like(made.back().detach());
  }
  return made;
}

struct Pair {
  const char* name;
  std::unique_ptr<to::Optimizer> fused, plain;
};

std::vector<Pair> pairs(const Tensors& ours, const Tensors& theirs) {
  const auto sgd = to::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4);
  const auto adam = to::AdamOptions(1e-3);
  const auto adamw = to::AdamWOptions(1e-3);
  std::vector<Pair> all;
  all.push_back(
      {"SGD", std::make_unique<holdfast::FusedSgd>(ours, sgd), std::make_unique<to::SGD>(theirs, sgd)});
  all.push_back(
      {"Adam", std::make_unique<holdfast::FusedAdam>(ours, adam), std::make_unique<to::Adam>(theirs, adam)});
  all.push_back({"AdamW", std::make_unique<holdfast::FusedAdamW>(ours, adamw),
                 std::make_unique<to::AdamW>(theirs, adamw)});
  return all;
}

double microseconds(to::Optimizer& optimizer, int updates) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < updates; ++i) optimizer.step();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
         updates;
}

// False: a goal was missed.
bool compare(bool tiny, int repetitions) {
  const Tensors ours = parameters(tiny), theirs = parameters(tiny);
  const double goal = tiny ? 10 : 2;
  const int updates = tiny ? 20 : 2;
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : ours) elements += parameter.numel();
  std::printf("\n%zu tensors, %lld elements\n%8s %14s %14s %8s %8s\n", ours.size(),
              static_cast<long long>(elements), "", "torch, us", "fused, us", "ratio", "goal");
  bool good = true;
  for (Pair& pair : pairs(ours, theirs)) {
    std::vector<double> fused, plain;
    microseconds(*pair.plain, 1);  // slots
    microseconds(*pair.fused, 1);
    for (int i = 0; i < repetitions; ++i) {
      plain.push_back(microseconds(*pair.plain, updates));
      fused.push_back(microseconds(*pair.fused, updates));
    }
    const double ratio = median(plain) / median(fused);
    const bool judged = std::string(pair.name) == "SGD";
    std::printf("%8s %14.1f %14.1f %8.2f", pair.name, median(plain), median(fused), ratio);
    judged ? std::printf(" %8.0f  %s\n", goal, ratio >= goal ? "PASS" : "MISS") : std::printf("\n");
    good = good && (!judged || ratio >= goal);
  }
  return good;
}

torch::nn::Sequential network() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 32),
                               torch::nn::ReLU(), torch::nn::Linear(32, 10));
}
to::SGDOptions options() { return to::SGDOptions(0.1).momentum(0.9).weight_decay(5e-4); }

struct OneBatch {
  at::Tensor inputs = at::randn({32, 16});
  at::Tensor targets = at::randint(10, {32}, at::kLong);
  std::int64_t size() const { return 32 * 1024; }
  std::string fingerprint() const { return "one batch"; }
  std::vector<at::Tensor> get_batch(const holdfast::BatchRequest&, holdfast::TensorPool&) const {
    return {inputs, targets};
  }
};

void train_plainly(int steps) {
  auto net = network();
  to::SGD optimizer(net->parameters(), options());
  const OneBatch batch;
  double sum = 0;
  for (int i = 0; i < steps; ++i) {
    optimizer.zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(net->forward(batch.inputs), batch.targets);
    loss.backward();
    optimizer.step();
    sum += loss.item<double>();
  }
  std::printf("%g\n", sum);
}

void train_by_trainer(int steps) {
  const TemporaryFolder folder;
  auto net = network();
  holdfast::FusedSgd optimizer(net->parameters(), options());
  holdfast::Loader data(OneBatch(), {.batch_size = 32, .workers = 0});
  holdfast::TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  state.add("data", data);
  holdfast::Checkpointer checkpointer(
      state, {.directory = folder.path(), .every = {}, .notices = {.hear_signals = false}});
  holdfast::Step step(optimizer, [&](const holdfast::Batch& batch) {
    return at::cross_entropy_loss(net->forward(batch.inputs), batch.targets);
  });
  holdfast::Trainer trainer({.state = state,
                             .checkpointer = checkpointer,
                             .model = *net,
                             .data = data,
                             .step = step,
                             .learning_rate = [](std::int64_t) { return 0.1; }},
                            {.steps = steps});
  if (trainer.run() != 0) throw std::runtime_error("the trainer failed");
  std::fflush(nullptr);
}

bool count_instructions() {
  const auto of_one = [](const char* loop) {
    return instructions_of_one({}, kFewSteps, kManySteps, [&](int steps) {
      return holdfast::bench::this_program({"--loop", loop, "--steps", std::to_string(steps)});
    });
  };
  const auto plain = of_one("plain");
  if (!plain) {
    std::printf("\ninstructions: not counted; install valgrind\n");
    return true;
  }
  const double ours = of_one("trainer").value();
  const bool good = ours / *plain <= kMostInstructions;
  std::printf(
      "\ninstructions of a step, 3 layers, batch 32\n%8s %14s %14s %8s %8s\n%8s %14.0f %14.0f %8.3f %8.2f  "
      "%s\n",
      "", "plain loop", "trainer", "ratio", "goal", "", *plain, ours, ours / *plain, kMostInstructions,
      good ? "PASS" : "MISS");
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fused optimizers against torch::optim");
  int threads = at::get_num_threads();
  int repetitions = 9;
  bool no_instructions = false;
  std::string loop;
  int steps = 0;
  app.add_option("--threads", threads, "of LibTorch; default: its own")->check(CLI::Range(1, 1024));
  app.add_option("--repetitions", repetitions, "of each case")->check(CLI::Range(9, 1000));
  app.add_flag("--no-instructions", no_instructions, "leave callgrind out");
  app.add_option("--loop", loop, "only train: what callgrind looks at")
      ->check(CLI::IsMember({"plain", "trainer"}));
  app.add_option("--steps", steps, "of --loop")->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  try {
    ::setenv("HOLDFAST_LOG", "error", 1);
    if (!loop.empty()) {
      at::set_num_threads(1);
      loop == "plain" ? train_plainly(steps) : train_by_trainer(steps);
      return 0;
    }
    at::set_num_threads(threads);
    std::printf("LibTorch's threads: %d; medians of %d interleaved repetitions\n", threads, repetitions);
    bool good = compare(/*tiny=*/false, repetitions);
    good = compare(/*tiny=*/true, repetitions) && good;
    if (!no_instructions) good = count_instructions() && good;
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_optimizer: %s\n", error.what());
    return 1;
  }
}
