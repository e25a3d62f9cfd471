// Trains ResNet-50 on CIFAR-10 and can be stopped at any moment; see options.cc for what it takes.
//
// The order of the start-up is that of its costs: the checkpoint and the pictures are read beside the model's
// construction, weights that a checkpoint overwrites are not drawn, and batches are made only once the cursor
// is known.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
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

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/cifar10.h"
#include "holdfast/data/loader.h"
#include "holdfast/data/pictures.h"
#include "holdfast/data/resident_pictures.h"
#include "holdfast/data/synthetic.h"
#include "holdfast/io/line_file.h"
#include "holdfast/metrics/console.h"
#include "holdfast/metrics/jsonl.h"
#include "holdfast/models/resnet.h"
#include "holdfast/optim/channels_last.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/precision/grad_scaler.h"
#include "holdfast/precision/precision.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"
#include "holdfast/train/trainer.h"
#include "options.h"
#include "plan.h"
#include "recipe.h"

namespace example {
namespace {

holdfast::PictureSplits read_pictures(const Options& options) {
  return options.synthetic_count ? holdfast::synthetic_pictures(*options.synthetic_count)
                                 : holdfast::read_cifar10(options.data);
}

// A guess that only decides how the model is made: resume() has the last word.
bool looks_resumable(const holdfast::CheckpointerOptions& options) {
  if (!options.init_from.empty()) return false;
  if (!options.resume_from.empty()) return true;
  const auto directory = holdfast::FileSystem::real().open_directory(options.directory, false);
  if (!directory) return false;
  for (const auto& entry : directory->list()) {
    if (entry.name.starts_with("step-")) return true;
  }
  return false;
}

void prepare_machine(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  holdfast::set_math_mode(options.precision);
  if (options.cuda) {
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // else cuBLAS may sum in any order
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    // Nothing here reads memory before it is written; filling it would be a kernel a tensor.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  }
}

struct Data {
  holdfast::Loader train;
  holdfast::Loader test;
};

holdfast::Loader make_loader(const Options& options, at::Device device, holdfast::PictureSet pictures,
                             const holdfast::AugmentOptions& augment,
                             const holdfast::LoaderOptions& loading) {
  if (options.data_on == DataOn::host)
    return {holdfast::PictureDataset(std::move(pictures), augment), loading};
  const auto layout = options.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return {holdfast::ResidentPictures(std::move(pictures), augment, {.device = device, .layout = layout}),
          loading};
}

Data make_loaders(const Options& options, at::Device device, holdfast::PictureSplits pictures) {
  const holdfast::AugmentOptions augment;
  const holdfast::LoaderOptions training{.batch_size = options.batch_size,
                                         .seed = static_cast<std::uint64_t>(options.seed),
                                         .accumulation = options.accumulate,
                                         .workers = options.workers,
                                         .pin_memory = options.cuda};
  const holdfast::LoaderOptions testing{.batch_size = 250,
                                        .epochs = 1,
                                        .shuffle = false,
                                        .drop_last = false,
                                        .workers = options.workers,
                                        .pin_memory = options.cuda};
  return {make_loader(options, device, std::move(pictures.train), augment, training),
          make_loader(options, device, std::move(pictures.test), augment.for_evaluation(), testing)};
}

// What no component records by itself.
void record_recipe(const Options& options, holdfast::TrainState& state) {
  state.option("optimizer", options.optimizer);
  state.option("clip_grad_norm", options.clip_grad_norm);
  state.option("label_smoothing", options.label_smoothing);
  state.option("precision", std::string(word_of(options.precision)));
  // Checkpoints from before there was a choice have none.
  if (options.bn != holdfast::BatchNormKind::aten) state.option("bn", std::string(word_of(options.bn)));
  state.layout_option("channels_last", options.channels_last);
}

int train(const Options& options) {
  prepare_machine(options);
  std::unique_ptr<holdfast::LineFile> metrics;
  if (!options.metrics.empty()) {
    metrics = std::make_unique<holdfast::LineFile>(holdfast::FileSystem::real(), options.metrics);
  }

  holdfast::TrainState state;
  holdfast::Checkpointer checkpointer(state, options.checkpointer);
  checkpointer.read_ahead();
  const at::Device device(options.cuda ? at::kCUDA : at::kCPU);
  auto reading = std::async(std::launch::async, read_pictures, options);
  const bool resumable = looks_resumable(options.checkpointer);
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  holdfast::ResNet net(holdfast::ResNetOptions{.num_classes = 10,
                                               .stem = options.stem,
                                               .width = options.width,
                                               .batch_norm = options.bn,
                                               .initialize = !resumable});
  net->to(device);
  if (options.channels_last) holdfast::to_channels_last(*net);
  Forward forward(net, device, options);
  // By default weight decay on everything, batch norms and biases included, as in torchvision's recipe.
  const auto optimizer = holdfast::make_optimizer(options.optimizer, *net,
                                                  {.lr = options.lr,
                                                   .momentum = options.momentum,
                                                   .nesterov = options.nesterov,
                                                   .weight_decay = options.weight_decay,
                                                   .decay_all = options.decay_all});
  Data data = make_loaders(options, device, reading.get());
  const std::int64_t steps = final_step(options, data.train.updates_per_epoch());

  state.add("model", *net);
  state.add("optimizer", *optimizer);
  holdfast::Schedule schedule(*optimizer, make_plan(options, data.train.updates_per_epoch()));
  state.add("schedule", schedule);
  state.add("data", data.train);
  std::optional<holdfast::GradScaler> scaler;
  if (holdfast::needs_scaler(options.precision)) {
    scaler.emplace(device, holdfast::GradScalerOptions{.init_scale = options.loss_scale});
    state.add("scaler", *scaler);
  }
  record_recipe(options, state);
  holdfast::Step step(*optimizer, [&](const holdfast::Batch& batch) { return forward.loss(batch); },
                      {.clip_grad_norm = options.clip_grad_norm,
                       .accumulation = options.accumulate,
                       .precision = options.precision,
                       .scaler = scaler ? &*scaler : nullptr,
                       .graph = options.graph});

  holdfast::ConsoleProgress console;
  holdfast::JsonlSink lines(options.metrics, [&](std::string_view line) { metrics->append(line); });
  holdfast::TrainerParts parts{.state = state,
                               .checkpointer = checkpointer,
                               .model = *net,
                               .data = data.train,
                               .step = step,
                               .learning_rate = [&](std::int64_t applied) { return schedule.apply(applied); },
                               .resumed =
                                   [&](const holdfast::Resumed& from) {
                                     if (from.fresh && resumable)
                                       net->initialize();  // nothing was there to overwrite the weights
                                     warn_when_longer_than(schedule.plan(), options, steps);
                                   },
                               .sinks = {&console}};
  if (metrics) parts.sinks.push_back(&lines);
  if (options.evaluate) {
    parts.test_data = &data.test;
    parts.score = [&](const holdfast::Batch& batch) { return forward.score(batch); };
  }
  holdfast::Trainer trainer(std::move(parts), {.steps = steps});
  const int exit_code = trainer.run();
  if (!options.recipe.empty()) {
    holdfast::log_info("trained for {:.2f} s, start-up and evaluations apart",
                       std::chrono::duration<double>(trainer.result().training).count());
  }
  if (const std::string line = to_line(trainer.result()); !line.empty()) std::puts(line.c_str());
  if (exit_code == static_cast<int>(holdfast::ExitCode::io_failed)) {
    // finish() may have given up on a disk that hangs; the writer's destructor would wait for it.
    std::fflush(nullptr);
    std::_Exit(exit_code);
  }
  return exit_code;
}

}  // namespace
}  // namespace example

int main(int argc, char** argv) {
  try {
    holdfast::configure_log();
    const auto options = example::parse_options(argc, argv, torch::cuda::is_available());
    return options ? example::train(*options) : EXIT_SUCCESS;
  } catch (const holdfast::Error& error) {
    holdfast::log_error(error.what());
    // Stopped while it waited for its volume: there is no state yet.
    if (error.exit_code() == holdfast::ExitCode::interrupted) {
      std::puts("interrupted step=0 state=none checkpoint=none reason=stopped_before_the_start");
    }
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::string text = error.what();
    holdfast::log_error(text.substr(0, text.find('\n')));  // c10 adds a stack trace
    return static_cast<int>(holdfast::ExitCode::internal);
  }
}
