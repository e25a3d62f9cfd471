#include "settle.h"

#include <algorithm>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace example {
namespace {

std::optional<std::int64_t> parse_synthetic(const std::string& data) {
  if (data == "synthetic") return 50'000;
  constexpr std::string_view kPrefix = "synthetic:";
  if (!data.starts_with(kPrefix)) return std::nullopt;
  const auto count = holdfast::parse_int(data.substr(kPrefix.size()));
  if (count && *count > 0) return count;
  throw holdfast::UsageError("--data " + data +
                             ": the count must be a whole number above 0, e.g. synthetic:2000");
}

// Options that the command line names beside --recipe 94 keep their values.
void apply_recipe_94(Options& options, const Given& given) {
  const auto set = [&](const char* flag, auto& option, auto value) {
    if (!given(flag)) option = value;
  };
  options.default_epochs = 30;
  options.warmup_share = 5;
  set("--batch-size", options.batch_size, 512);
  set("--stem", options.stem, holdfast::Stem::cifar);
  set("--nesterov", options.nesterov, options.optimizer.ends_with("sgd"));
  set("--decay-all", options.decay_all, false);
  set("--label-smoothing", options.label_smoothing, 0.1);
  set("--channels-last", options.channels_last, true);
  if (!options.cuda) return;
  set("--precision", options.precision, holdfast::Precision::fp16);
  set("--graph", options.graph, true);
  if (options.channels_last && options.width % 8 == 0) {  // what fused norms need
    set("--bn", options.bn, holdfast::BatchNormKind::fused);
  }
  set("--data-on", options.data_on, DataOn::device);
}

void settle_precision(Options& options, bool chosen) {
  const holdfast::DeviceTraits device = holdfast::traits_of(options.cuda ? at::kCUDA : at::kCPU);
  const auto choices = holdfast::supported_on(device);
  if (chosen) {
    try {
      holdfast::require_supported(options.precision, device);
    } catch (const holdfast::UsageError& error) {
      throw holdfast::UsageError(std::string("--precision: ") + error.what());
    }
  } else if (options.cuda &&
             std::find(choices.begin(), choices.end(), holdfast::Precision::tf32) != choices.end()) {
    options.precision = holdfast::Precision::tf32;
  }
}

void settle_batch_norm(const Options& options) {
  if (options.bn == holdfast::BatchNormKind::aten) return;
  const std::string choice = "--bn fused";
  if (!options.channels_last) throw holdfast::UsageError(choice + " needs --channels-last");
  const bool half =
      options.precision == holdfast::Precision::fp16 || options.precision == holdfast::Precision::bf16;
  if (const int multiple = half ? 8 : 4; options.width % multiple != 0) {
    throw holdfast::UsageError(choice + " needs a --width that is a multiple of " + std::to_string(multiple));
  }
}

void settle_ranks(Options& options) {
  options.place = holdfast::launch_environment();
  try {
    options.share =
        holdfast::divide_batch(options.batch_size, options.place.world_size, options.micro_batch_size);
  } catch (const holdfast::UsageError& error) {
    throw holdfast::UsageError(std::string("--batch-size: ") + error.what());
  }
}

}  // namespace

void apply_machine_defaults(Options& options, bool cuda_available) {
  const int cores = std::max(1U, std::thread::hardware_concurrency());
  options.cuda = cuda_available;
  options.workers = cuda_available ? std::min(4, cores) : 1;
  options.default_epochs = 1;
  if (cuda_available) {
    options.stem = holdfast::Stem::cifar;
    options.batch_size = 512;
    options.default_epochs = 100;
  }
  options.checkpointer.directory = "runs/resnet50_cifar10";
}

void settle(Options& options, const Given& given) {
  if (options.recipe == "94") apply_recipe_94(options, given);
  if (!options.optimizer.ends_with("sgd")) {
    if (given("--momentum")) {
      throw holdfast::UsageError("--momentum belongs to --optimizer sgd; " + options.optimizer +
                                 " has its own two");
    }
    if (options.nesterov) {
      throw holdfast::UsageError("--nesterov belongs to --optimizer sgd, not to " + options.optimizer);
    }
    const bool lamb = options.optimizer == "lamb";
    if (!given("--lr")) options.lr = lamb ? 2e-3 : 1e-3;
    if (!given("--weight-decay")) {
      options.weight_decay = options.optimizer.ends_with("adamw") ? 0.05 : lamb ? 0.01 : 0;
    }
  } else if (!given("--lr")) {
    // Goyal et al. 2017: the rate of 0.1 belongs to 128 pictures an update.
    options.lr = 0.1 * static_cast<double>(options.batch_size) / 128;
  }
  settle_precision(options, given("--precision") || (options.cuda && !options.recipe.empty()));
  settle_batch_norm(options);
  if (given("--loss-scale") && !holdfast::needs_scaler(options.precision)) {
    throw holdfast::UsageError("--loss-scale belongs to --precision fp16; the others need none");
  }
  if (options.schedule == ScheduleKind::constant && given("--schedule-steps")) {
    throw holdfast::UsageError("--schedule-steps is where the cosine ends; --schedule constant has no end");
  }
  if (options.schedule_steps && options.warmup_steps && *options.warmup_steps > *options.schedule_steps) {
    throw holdfast::UsageError("--warmup-steps " + std::to_string(*options.warmup_steps) +
                               " is longer than --schedule-steps " + std::to_string(*options.schedule_steps));
  }
  options.synthetic_count = parse_synthetic(options.data);
  settle_ranks(options);
}

}  // namespace example
