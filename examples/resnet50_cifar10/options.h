// The command line of resnet50_cifar10, and defaults that depend on the machine.
//
// Errors: UsageError, one line that names the option and the valid values. Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/models/resnet.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/global_batch.h"
#include "holdfast/precision/precision.h"

namespace example {

enum class ScheduleKind { cosine, constant };
enum class DataOn { host, device };

struct Options {
  std::string data = "synthetic";  // a folder, or synthetic[:COUNT]
  std::optional<std::int64_t> synthetic_count;

  // The length of the run, as a total: one of the two. Free to change on resume.
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;

  // The recipe. Each of these decides the next step: recorded, and compared on resume.
  std::int64_t batch_size = 128;  // samples of one update, of all ranks and micro-batches
  std::string optimizer = "sgd";  // holdfast::optimizer_names()
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  bool decay_all = true;  // false: no weight decay for biases and batch norms
  double clip_grad_norm = 0;
  double label_smoothing = 0;
  holdfast::Precision precision = holdfast::Precision::fp32;
  double loss_scale = 65536;  // initial loss scale in fp16; not recorded, unlike the others here
  bool channels_last = false;
  holdfast::BatchNormKind bn = holdfast::BatchNormKind::aten;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::optional<std::int64_t> schedule_steps;  // length of the cosine; default: whole epochs, see plan.h
  std::optional<std::int64_t> warmup_steps;    // default: schedule_steps / warmup_share
  std::int64_t warmup_share = 20;
  std::int64_t seed = 1;
  holdfast::Stem stem = holdfast::Stem::imagenet;
  std::int64_t width = 64;

  std::string recipe;  // a name for many options here and below: "94", or empty

  // Free to change on resume.
  std::int64_t default_epochs = 1;    // the recipe's epochs if neither --epochs nor --steps is given
  std::int64_t micro_batch_size = 0;  // most samples of one pass on one rank; 0: no limit
  bool evaluate = true;
  DataOn data_on = DataOn::host;
  bool graph = false;
  int workers = 1;
  int threads = 0;  // 0: all cores
  bool cuda = false;
  bool deterministic = true;  // of a GPU's kernels
  std::string metrics;
  std::string tensorboard;                  // a folder
  std::int64_t tensorboard_histograms = 0;  // every so many steps; 0: never
  std::string prometheus;                   // a file
  holdfast::CheckpointerOptions checkpointer;

  // The launcher's variables, and what follows from them.
  holdfast::LaunchEnvironment place;
  holdfast::BatchShare share;
};

// `cuda_available` selects defaults. nullopt: --help was printed.
std::optional<Options> parse_options(int argc, const char* const* argv, bool cuda_available);

const char* name_of(ScheduleKind kind);
const char* name_of(holdfast::Stem stem);

}  // namespace example
