// What a user can say on the command line of resnet50_cifar10, and what a machine's defaults are.
//
// Errors: UsageError, one line that names the option and what would be right.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/launch_environment.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/global_batch.h"
#include "holdfast/models/resnet.h"
#include "holdfast/precision/precision.h"

namespace example {

enum class ScheduleKind { cosine, constant };
enum class DataOn { host, device };

struct Options {
  std::string data = "synthetic";  // a folder, or synthetic[:COUNT]
  std::optional<std::int64_t> synthetic_count;

  // How far: one of the two, totals. Free to change on resume.
  std::optional<std::int64_t> epochs;
  std::optional<std::int64_t> steps;

  // The recipe. Each of these decides the next step: recorded, and compared on resume.
  std::int64_t batch_size = 128;  // of one update: of all ranks and all micro-batches
  std::string optimizer = "sgd";  // holdfast::optimizer_names()
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  bool decay_all = true;  // off: weights alone, neither biases nor batch norms
  double clip_grad_norm = 0;
  double label_smoothing = 0;
  holdfast::Precision precision = holdfast::Precision::fp32;
  double loss_scale = 65536;  // of the first update in fp16; the only one here that is not recorded
  bool channels_last = false;
  holdfast::BatchNormKind bn = holdfast::BatchNormKind::aten;
  ScheduleKind schedule = ScheduleKind::cosine;
  std::optional<std::int64_t> schedule_steps;  // where the cosine ends; default: whole epochs, see plan.h
  std::optional<std::int64_t> warmup_steps;    // default: one in warmup_share of schedule_steps
  std::int64_t warmup_share = 20;
  std::int64_t seed = 1;
  holdfast::Stem stem = holdfast::Stem::imagenet;
  std::int64_t width = 64;

  std::string recipe;  // a name for many of these and some of those below: "94", or none

  // Where, how often, how fast: free to change.
  std::int64_t default_epochs = 1;    // of the recipe, when neither epochs nor steps is given
  std::int64_t micro_batch_size = 0;  // most of one rank and pass; 0: no limit
  bool evaluate = true;
  DataOn data_on = DataOn::host;
  bool graph = false;
  int workers = 1;
  int threads = 0;  // 0: all cores
  bool cuda = false;
  std::string metrics;
  holdfast::CheckpointerOptions checkpointer;

  // What the launcher says, and what follows from it.
  holdfast::LaunchEnvironment place;
  holdfast::BatchShare share;
};

// `cuda_available` chooses the defaults. nullopt: help was asked for and printed.
std::optional<Options> parse_options(int argc, const char* const* argv, bool cuda_available);

const char* name_of(ScheduleKind kind);
const char* name_of(holdfast::Stem stem);

}  // namespace example
