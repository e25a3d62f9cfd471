// Trains ResNet-50 on CIFAR-10 and can be stopped at any moment; see options.cc for what it takes.
//
// The order of the start-up is that of its costs: the checkpoint and the pictures are read beside the model's
// construction, weights that a checkpoint overwrites are not drawn, and batches are made only once the cursor
// is known.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/cuda.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/cifar10.h"
#include "holdfast/data/loader.h"
#include "holdfast/data/synthetic.h"
#include "holdfast/io/line_file.h"
#include "holdfast/metrics/console.h"
#include "holdfast/metrics/jsonl.h"
#include "holdfast/models/resnet.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/state/train_state.h"
#include "holdfast/train/step.h"
#include "holdfast/train/trainer.h"
#include "options.h"
#include "plan.h"

namespace example {
namespace {

namespace functional = torch::nn::functional;

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

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Options& options, torch::nn::Module& net) {
  // Weight decay on everything, batch norms and biases included, as in torchvision's reference recipe.
  if (options.optimizer == OptimizerKind::adamw) {
    return std::make_unique<torch::optim::AdamW>(
        net.parameters(), torch::optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
  }
  return std::make_unique<torch::optim::SGD>(
      net.parameters(),
      torch::optim::SGDOptions(options.lr).momentum(options.momentum).weight_decay(options.weight_decay));
}

void prepare_machine(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  if (options.cuda) {
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
}

struct Data {
  holdfast::Loader train;
  holdfast::Loader test;
};

Data make_loaders(const Options& options, holdfast::PictureSplits pictures) {
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
  return {{holdfast::PictureDataset(std::move(pictures.train), augment), training},
          {holdfast::PictureDataset(std::move(pictures.test), augment.for_evaluation()), testing}};
}

// The model on its device, as functions of a batch.
class Forward {
 public:
  Forward(holdfast::ResNet net, at::Device device) : net_(std::move(net)), device_(device) {}

  at::Tensor loss(const holdfast::Batch& batch) {
    return functional::cross_entropy(logits(batch), targets(batch));
  }
  holdfast::Score score(const holdfast::Batch& batch) {
    const at::Tensor answers = logits(batch), right = targets(batch);
    const auto sum = functional::CrossEntropyFuncOptions().reduction(torch::kSum);
    return {.correct = answers.argmax(1).eq(right).sum().item<double>(),
            .loss_sum = functional::cross_entropy(answers, right, sum).item<double>()};
  }

 private:
  at::Tensor logits(const holdfast::Batch& batch) {
    return net_->forward(batch.inputs.to(device_, /*non_blocking=*/true));
  }
  at::Tensor targets(const holdfast::Batch& batch) const { return batch.targets.to(device_, true); }

  holdfast::ResNet net_;
  at::Device device_;
};

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
  holdfast::ResNet net(holdfast::ResNetOptions{
      .num_classes = 10, .stem = options.stem, .width = options.width, .initialize = !resumable});
  net->to(device);
  Forward forward(net, device);
  const auto optimizer = make_optimizer(options, *net);
  Data data = make_loaders(options, reading.get());
  const std::int64_t steps = final_step(options, data.train.updates_per_epoch());

  state.add("model", *net);
  state.add("optimizer", *optimizer);
  holdfast::Schedule schedule(*optimizer, make_plan(options, data.train.updates_per_epoch()));
  state.add("schedule", schedule);
  state.add("data", data.train);
  state.option("clip_grad_norm", options.clip_grad_norm);  // all others are recorded by their components
  holdfast::Step step(*optimizer, [&](const holdfast::Batch& batch) { return forward.loss(batch); },
                      {.clip_grad_norm = options.clip_grad_norm, .accumulation = options.accumulate});

  holdfast::ConsoleProgress console;
  holdfast::JsonlSink lines(options.metrics, [&](std::string_view line) { metrics->append(line); });
  holdfast::TrainerParts parts{.state = state,
                               .checkpointer = checkpointer,
                               .model = *net,
                               .data = data.train,
                               .step = step,
                               .learning_rate = [&](std::int64_t done) { return schedule.apply(done); },
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
