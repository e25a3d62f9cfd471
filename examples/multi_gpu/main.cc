// Your own training loop on several GPUs (or CPUs), with one checkpoint for all of them. Read it from top to
// bottom: the loop is train(), and every line that several ranks need says what it is for.
//
//   multi_gpu RUN_DIRECTORY [STEPS]                                             # alone: a world of one
//   holdfast launch --nproc 8 -- multi_gpu RUN_DIRECTORY                        # one host, a rank a GPU
//   srun --ntasks-per-node=8 --gpus-per-node=8 multi_gpu RUN_DIRECTORY          # Slurm
//   torchrun --nproc-per-node 8 --no-python multi_gpu RUN_DIRECTORY             # see below
//
// Stop it however you like (Ctrl-C, SIGTERM to any rank, kill -9, a power cut) and start it again, with as
// many ranks as there are then: it goes on where the last committed step was, with the same global batches in
// the same order. Exit code 75: start it again.
//
// torchrun restarts a process with any other code than 0 on the spot, and then returns 1 whatever the codes
// were: make interruptions 0 there (CheckpointerOptions::exit_code_interrupted, as a flag of your program;
// --exit-code-interrupted 0 in the other example), and read in RUN_DIRECTORY/RUN_STATE.json how it ended.
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

#include "holdfast/base/error.h"
#include "holdfast/base/last_words.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/global_batch.h"
#include "holdfast/data/loader.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sum_over_ranks.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/state/train_state.h"

namespace {

constexpr std::int64_t kGlobalBatch = 96;  // of all ranks together, whatever their number

// Points of three spiral arms: which arm is point i on? Every rank has all of them, and loads its share.
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

// Each rank has a GPU of its own. A launcher may show it that one alone.
at::Device device_of(const holdfast::LaunchEnvironment& place) {
  const auto here = static_cast<int>(torch::cuda::device_count());
  if (here == 0) return at::kCPU;
  const int index = here == 1 ? 0 : place.local_rank;
  if (index < here) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  throw holdfast::UsageError("there are more ranks on this host than GPUs: start " + std::to_string(here));
}

int train(const char* directory, std::int64_t steps) {
  // Who this process is, from the launcher's variables. Waits until all ranks are there, and says who is
  // missing. On a GPU ranks talk by NCCL, on a CPU by Gloo.
  const holdfast::LaunchEnvironment place = holdfast::launch_environment();
  const at::Device device = device_of(place);
  const c10::OptionalDeviceGuard current(device.is_cuda() ? std::optional(device) : std::nullopt);
  holdfast::ProcessGroup group({.place = place, .device = device});
  const bool first = group.rank() == 0;

  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(2, 64), torch::nn::ReLU(), torch::nn::Dropout(0.1),
                            torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 3));
  net->to(device);
  holdfast::DataParallel parallel(*net, group);  // rank 0's weights everywhere, verified
  torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(1e-2));
  // From here on each rank draws its own random numbers; a checkpoint has those of all.
  torch::manual_seed(7 + static_cast<std::uint64_t>(group.rank()));

  // The same global batch for any number of ranks, of which each takes its part. (A part that is too large
  // for its GPU: data/global_batch.h and data_parallel.h say how to compute it in several passes.)
  const auto share = holdfast::divide_batch(kGlobalBatch, group.world_size());
  if (first) std::fprintf(stderr, "%s\n", to_text(share).c_str());
  const holdfast::Shard shard{group.rank(), group.world_size()};
  holdfast::Loader loader(Spirals(), {.batch_size = share.batch_size, .seed = 7, .shard = shard});

  holdfast::TrainState state;
  state.add("model", *net);
  state.add("optimizer", optimizer);
  state.add("data", loader);
  state.add("parallel", parallel);  // the order in which gradients are summed

  // What makes one run of all ranks: they save and stop at the same step, whoever is told to.
  holdfast::Agreement agreement(group);
  holdfast::Checkpointer checkpointer(
      state, {.directory = directory, .every = {std::chrono::seconds(10)}, .companions = &agreement});
  double loss_value = checkpointer.resume().loss;

  holdfast::SumOverRanks losses(group, "losses");
  bool stop = false;
  while (!stop && state.step() < steps) {
    const auto batch = loader.next();
    optimizer.zero_grad();
    parallel.before_forward();
    const at::Tensor loss = torch::nn::functional::cross_entropy(net->forward(batch->inputs.to(device)),
                                                                 batch->targets.to(device));
    losses.begin(loss.to(at::kDouble));  // under way while gradients are computed and averaged
    parallel.backward(loss);             // instead of loss.backward()
    checkpointer.before_update();
    optimizer.step();
    loss_value = losses.wait().item<double>() / group.world_size();  // the same bits on all ranks
    stop = checkpointer.after_step({.applied = batch->cursor, .loss = loss_value}).stop;  // all, or none
    if (first && state.step() % 100 == 0)
      std::fprintf(stderr, "step %ld loss %.17g\n", long{state.step()}, loss_value);
  }
  const int exit_code = checkpointer.finish();  // the same on all ranks
  const std::string digest = holdfast::to_hex(checkpointer.state_digest());
  if (first) std::printf("step=%ld loss=%.17g state=%s\n", long{state.step()}, loss_value, digest.c_str());
  try {
    group.leave();  // nobody closes a connection that another still uses; never left to the end of main
  } catch (const holdfast::GroupError& error) {
    holdfast::log_warning(error.what());  // the run is over: a rank that is lost only now changes nothing
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
    return holdfast::last_words(error);  // one line, and the same to torchrun; the exit code
  }
}
