// Your own training loop on several GPUs (or CPUs), with one checkpoint for all of them. Read it from top to
// bottom: train() is the loop, and each line that only several ranks need has a comment.
//
//   multi_gpu RUN_DIRECTORY [STEPS]                                             # alone: a world of one
//   holdfast launch --nproc 8 -- multi_gpu RUN_DIRECTORY                        # one host, one rank per GPU
//   srun --ntasks-per-node=8 --gpus-per-node=8 multi_gpu RUN_DIRECTORY          # Slurm
//   torchrun --nproc-per-node 8 --no-python multi_gpu RUN_DIRECTORY             # see below
//
// Stop it in any way (Ctrl-C, SIGTERM to any rank, kill -9, a power cut) and start it again with any number
// of ranks. It continues at the last committed step, with the same global batches in the same order. Exit
// code 75: start it again.
//
// torchrun restarts a process with any code but 0 at once and then returns 1. Make interruptions 0 there
// (CheckpointerOptions::notices.exit_code_interrupted, as a flag of your program; --exit-code-interrupted 0
// in the other example). RUN_DIRECTORY/RUN_STATE.json says how the run ended.
#include <c10/core/DeviceGuard.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/utils.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>

#include "holdfast/distributed/distributed.h"
#include "holdfast/holdfast.h"

namespace {

constexpr std::int64_t kGlobalBatch = 96;  // samples of all ranks together, for any number of ranks

// Points of three spiral arms; the network learns the arm of a point. Every rank has all points and loads its
// share.
struct Spirals {
  struct Sample {
    at::Tensor point;
    std::int64_t arm;
  };
  std::int64_t size() const { return 3000; }
  Sample get(std::int64_t index) const {
    const double radius = 0.1 + 0.9 * static_cast<double>(index) / 3000;
    const double angle = radius * 5 + static_cast<double>(index % 3) * 2.0944;
    return {torch::tensor({radius * std::cos(angle), radius * std::sin(angle)}, at::kFloat), index % 3};
  }
};

// Each rank has its own GPU. A launcher may show a rank only that one.
at::Device device_of(const holdfast::LaunchEnvironment& place) {
  const auto here = static_cast<int>(torch::cuda::device_count());
  if (here == 0) return at::kCPU;
  const int index = here == 1 ? 0 : place.local_rank;
  if (index < here) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  throw holdfast::UsageError("there are more ranks on this host than GPUs: start " + std::to_string(here));
}

int train(const char* directory, std::int64_t steps) {
  // Which rank this process is, from the launcher's variables. Waits until all ranks are there, and names
  // those that are missing. Ranks on GPUs communicate by NCCL, ranks on CPUs by Gloo.
  const holdfast::LaunchEnvironment place = holdfast::launch_environment();
  const at::Device device = device_of(place);
  const c10::OptionalDeviceGuard current(device.is_cuda() ? std::optional(device) : std::nullopt);
  holdfast::ProcessGroup group({.place = place, .device = device});
  const bool first = group.rank() == 0;

  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                            torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 3));
  net->to(device);
  holdfast::DataParallel parallel(*net, group);  // gives all ranks rank 0's weights, and verifies them
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  // From here on each rank draws its own random numbers; a checkpoint has those of all ranks.
  torch::manual_seed(7 + static_cast<std::uint64_t>(group.rank()));

  // The same global batch for any number of ranks; each takes its part. data/global_batch.h and
  // data_parallel.h explain how to compute a part in several passes if it does not fit into a GPU.
  const auto share = holdfast::divide_batch(kGlobalBatch, group.world_size());
  if (first) std::fprintf(stderr, "%s\n", to_text(share).c_str());
  const holdfast::Shard shard{group.rank(), group.world_size()};
  holdfast::Loader loader(Spirals(), {.batch_size = share.batch_size, .seed = 7, .shard = shard});

  holdfast::TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  state.add("data", loader);
  state.add("parallel", parallel);  // the order in which gradients are summed

  // Makes one run of all ranks: a stop or a save on one rank happens on all, at the same step.
  holdfast::Agreement agreement(group);
  holdfast::Checkpointer checkpointer(
      state, {.directory = directory, .every = {std::chrono::seconds(10)}, .ranks = {.channel = &agreement}});
  double loss_value = checkpointer.resume().loss;

  holdfast::SumOverRanks losses(group, "losses");
  bool stop = false;
  while (!stop && state.step() < steps) {
    const auto batch = loader.next();
    optimizer.zero_grad();
    parallel.before_forward();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(batch->inputs.to(device)),
                                                                 batch->targets.to(device));
    losses.begin(loss.to(at::kDouble));  // runs while gradients are computed and averaged
    parallel.backward(loss);             // instead of loss.backward()
    checkpointer.before_update();
    optimizer.step();
    loss_value = losses.wait().item<double>() / group.world_size();  // the same bits on all ranks
    stop = checkpointer.after_step({.applied = batch->cursor, .loss = loss_value}).stop;  // the same on all
                                                                                          // ranks
    if (first && state.step() % 100 == 0)
      std::fprintf(stderr, "step %ld loss %.17g\n", long{state.step()}, loss_value);
  }
  const int exit_code = checkpointer.finish();  // the same on all ranks
  const std::string digest = holdfast::to_hex(checkpointer.state_digest());
  if (first) std::printf("step=%ld loss=%.17g state=%s\n", long{state.step()}, loss_value, digest.c_str());
  try {
    group.leave();  // waits for all ranks, so that no rank closes a connection that another uses
  } catch (const holdfast::GroupError& error) {
    holdfast::log_warning(error.what());  // the run is over: a rank that is lost now changes nothing
  }
  return exit_code;
}

std::int64_t parse_steps(const std::string& text) {
  const auto steps = holdfast::parse_int(text);
  if (steps && *steps > 0) return *steps;
  throw holdfast::UsageError("STEPS is " + text + ": expected a whole number above 0, e.g. 2000");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: multi_gpu RUN_DIRECTORY [STEPS]\n");
    return static_cast<int>(holdfast::ExitCode::usage);
  }
  try {
    return train(argv[1], argc == 3 ? parse_steps(argv[2]) : 2000);
  } catch (const std::exception& error) {
    return holdfast::last_words(error);  // prints one line, tells torchrun, returns the exit code
  }
}
