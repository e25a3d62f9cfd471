// Trains ResNet-50 on CIFAR-10 and can be stopped at any moment; options.cc has the options.
//
// The start-up hides its slow parts: the checkpoint and the pictures are read while the model is built,
// weights that a checkpoint overwrites are not drawn, and batches are made only when the cursor is known.
//
// One process or many run the same code (distributed/process_group.h). Rank 0 has the volume, the progress
// and the result; each rank has its share of every batch. Each rank reads the pictures into its own memory,
// from a folder that no rank writes to (examples/resnet50_cifar10/run fetches it before it starts any).
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <torch/cuda.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data.h"
#include "examples/models/resnet.h"
#include "holdfast/base/error.h"
#include "holdfast/base/freed_memory.h"
#include "holdfast/base/last_words.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/io/file_system.h"
#include "holdfast/kernels/batch_norm.h"
#include "holdfast/metrics/background.h"
#include "holdfast/metrics/console.h"
#include "holdfast/optim/channels_last.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/precision/precision.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"
#include "holdfast/train/trainer.h"
#include "metrics.h"
#include "options.h"
#include "plan.h"
#include "recipe.h"
#include "start_log.h"

namespace example { namespace {

// A guess that only decides whether weights are drawn; resume() decides what is loaded. Rank 0 makes it,
// because only rank 0 may see the volume.
bool looks_resumable(const holdfast::CheckpointerOptions& options) {
  if (!options.start.init_from.empty()) return false;
  if (!options.start.resume_from.empty()) return true;
  const auto directory = holdfast::FileSystem::real().open_directory(options.directory, false);
  if (!directory) return false;
  for (const auto& entry : directory->list()) {
    if (entry.name.starts_with("step-")) return true;
  }
  return false;
}

bool looks_resumable_to_rank_0(const Options& options, holdfast::ProcessGroup& group) {
  const bool here = group.rank() == 0 && looks_resumable(options.checkpointer);
  return group.exchange("what rank 0 begins with", here ? "a checkpoint" : "nothing").front() != "nothing";
}

at::Device device_of(const Options& options) {
  if (!options.cuda) return at::kCPU;
  const auto here = static_cast<int>(torch::cuda::device_count());
  // A launcher may show each rank only its own GPU.
  const int index = here == 1 && options.place.world_size > 1 ? 0 : options.place.local_rank;
  if (index < here) return {at::kCUDA, static_cast<at::DeviceIndex>(index)};
  throw holdfast::UsageError("local rank " + std::to_string(index) + " (from " +
                             holdfast::name_of(options.place.launcher) +
                             ") wants its own GPU, and this host has " + std::to_string(here) +
                             ": start as many ranks as there are, or give --no-cuda");
}

void prepare_machine(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  holdfast::set_math_mode(options.precision);
  if (options.cuda && !options.deterministic) {
    holdfast::log_warning(
        "--no-deterministic: a resumed run may differ from an uninterrupted one in its last bits");
    at::globalContext().setBenchmarkCuDNN(true);
  } else if (options.cuda) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // otherwise cuBLAS may sum in any order
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    // This program never reads uninitialised memory, and filling it would cost a kernel per tensor.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
}

// Options that no component records.
void record_recipe(const Options& options, holdfast::TrainState& state) {
  state.option("optimizer", options.optimizer);
  state.option("clip_grad_norm", options.clip_grad_norm);
  state.option("label_smoothing", options.label_smoothing);
  state.option("precision", std::string(word_of(options.precision)));
  // Older checkpoints do not have this option.
  if (options.bn != holdfast::BatchNormKind::aten) state.option("bn", std::string(word_of(options.bn)));
  state.layout_option("channels_last", options.channels_last);
}

// The run is over and all ranks know its outcome, so a rank that is lost now changes nothing.
void part(holdfast::ProcessGroup& group) {
  try {
    group.leave();
  } catch (const holdfast::GroupError& error) {
    holdfast::log_warning(error.what());
  }
}

int train(const Options& options, StartLog& start) {
  prepare_machine(options);
  const at::Device device = device_of(options);
  const c10::OptionalDeviceGuard current(device.is_cuda() ? std::optional(device) : std::nullopt);
  auto reading = std::async(std::launch::async, [&] {
    auto pictures = read_pictures(options);
    start.passed("reading");
    return pictures;
  });

  holdfast::ProcessGroup group({.place = options.place, .device = device});
  holdfast::Agreement agreement(group);
  const bool first = group.rank() == 0;  // this rank writes and reports
  if (first && options.share.global() != options.share.batch_size) {
    holdfast::log_info(to_text(options.share));
  }
  const auto metrics = first ? make_metrics(options) : nullptr;
  auto exporters = first ? make_exporters(options) : std::vector<std::unique_ptr<holdfast::MetricSink>>();
  holdfast::TrainState state;
  holdfast::CheckpointerOptions checkpoints = options.checkpointer;
  checkpoints.ranks.channel = &agreement;
  holdfast::Checkpointer checkpointer(state, checkpoints);
  if (first) checkpointer.read_ahead();
  start.passed("checkpointer");
  const bool resumable = looks_resumable_to_rank_0(options, group);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  holdfast::ResNet net(holdfast::ResNetOptions{.num_classes = 10,
                                               .stem = options.stem,
                                               .width = options.width,
                                               .batch_norm = options.bn,
                                               .initialize = !resumable});
  net->to(device);
  if (options.channels_last) holdfast::to_channels_last(*net);
  if (options.bn == holdfast::BatchNormKind::fused) {
    holdfast::prepare_fused_batch_norm(holdfast::autocast_type(options.precision).value_or(at::kFloat),
                                       device);
  }
  holdfast::DataParallel parallel(*net, group);
  start.passed("model");
  Forward forward(net, device, options);
  // By default weight decay applies to everything, also to batch norms and biases, as in torchvision's
  // recipe.
  const auto optimizer = holdfast::make_optimizer(options.optimizer, *net,
                                                  {.lr = options.lr,
                                                   .momentum = options.momentum,
                                                   .nesterov = options.nesterov,
                                                   .weight_decay = options.weight_decay,
                                                   .decay_all = options.decay_all});
  holdfast::PictureSplits pictures = reading.get();
  start.passed("pictures");
  Data data = make_loaders(options, device, std::move(pictures));
  start.passed("loaders");
  const std::int64_t steps = final_step(options, data.train.updates_per_epoch());

  state.add("model", *net);
  state.add("optimizer", *optimizer);
  holdfast::Schedule schedule(*optimizer, make_plan(options, data.train.updates_per_epoch()));
  state.add("schedule", schedule);
  state.add("data", data.train);
  state.add("parallel", parallel);
  std::optional<holdfast::GradScaler> scaler;
  if (holdfast::needs_scaler(options.precision)) {
    scaler.emplace(device, holdfast::GradScalerOptions{.init_scale = options.loss_scale});
    state.add("scaler", *scaler);
  }
  record_recipe(options, state);
  const auto loss = [&](const holdfast::Batch& batch) {
    start.passed("batch");
    at::Tensor value = forward.loss(batch);
    start.passed("forward");
    return value;
  };
  holdfast::Step step(*optimizer, loss,
                      {.clip_grad_norm = options.clip_grad_norm,
                       .accumulation = options.share.accumulation,
                       .precision = options.precision,
                       .scaler = scaler ? &*scaler : nullptr,
                       .layers = net.get(),
                       .parallel = &parallel,
                       .graph = options.graph});

  holdfast::ConsoleProgress console;
  holdfast::TrainerParts parts{.state = state,
                               .checkpointer = checkpointer,
                               .model = *net,
                               .data = data.train,
                               .step = step,
                               .learning_rate =
                                   [&](std::int64_t applied) {
                                     start.passed("backward");
                                     return schedule.apply(applied);
                                   },
                               .resumed =
                                   [&](const holdfast::Resumed& from) {
                                     if (from.fresh && resumable) {
                                       net->initialize();  // there was no checkpoint to overwrite the weights
                                       parallel.verify();
                                     }
                                     if (first) warn_when_longer_than(schedule.plan(), options, steps);
                                   },
                               .sinks = {}};
  if (start.on()) parts.sinks.push_back(&start);
  if (first) parts.sinks.push_back(&console);
  if (metrics) parts.sinks.push_back(metrics.get());
  std::optional<holdfast::BackgroundSinks> background;
  if (!exporters.empty()) {
    background.emplace(std::move(exporters), holdfast::BackgroundOptions{.status = [&] {
                         return holdfast::status_of(checkpointer);
                       }});
    parts.sinks.push_back(&*background);
  }
  if (options.evaluate) {
    parts.test_data = &data.test;
    parts.score = [&](const holdfast::Batch& batch) { return forward.score(batch); };
  }
  holdfast::Trainer trainer(
      std::move(parts),
      {.steps = steps, .histograms_every = options.tensorboard.empty() ? 0 : options.tensorboard_histograms});
  const int exit_code = trainer.run();
  if (first && !options.recipe.empty()) {
    holdfast::log_info("trained for {:.2f} s, start-up and evaluations apart",
                       std::chrono::duration<double>(trainer.result().training).count());
  }
  if (const std::string line = to_line(trainer.result()); first && !line.empty()) std::puts(line.c_str());
  part(group);
  if (exit_code == static_cast<int>(holdfast::ExitCode::io_failed)) {
    // finish() may have given up on a disk that hangs. The writer's destructor would wait for it, so no
    // destructor runs.
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }
  return exit_code;
}

}}  // namespace example

int main(int argc, char** argv) {
  holdfast::keep_freed_memory();
  bool reports = true;
  int interrupted = static_cast<int>(holdfast::ExitCode::interrupted);
  try {
    holdfast::configure_log();
    example::StartLog start;
    start.passed("main");
    const auto options = example::parse_options(argc, argv, torch::cuda::is_available());
    if (!options) return EXIT_SUCCESS;
    reports = options->place.rank == 0;
    interrupted = options->checkpointer.notices.exit_code_interrupted;
    start.passed("options");
    return example::train(*options, start);
  } catch (const std::exception& error) {
    const int exit_code = holdfast::last_words(error, interrupted);
    // Stopped while waiting for its volume: there is no state yet. The message about a lost rank says more
    // than this line.
    if (reports && exit_code == interrupted && dynamic_cast<const holdfast::GroupError*>(&error) == nullptr) {
      std::puts("interrupted step=0 state=none checkpoint=none reason=stopped_before_the_start");
    }
    return exit_code;
  }
}
