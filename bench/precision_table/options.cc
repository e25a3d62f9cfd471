#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr char kHelp[] =
    R"(Training throughput of ResNet-50, ResNet-152, VGG-16 and AlexNet in every precision, layout and mode, on
synthetic pictures that are made on the device: forward, backward and SGD with momentum, for FP16 with loss
scaling. Prints images/s, the model's own FLOP/s (and which share of the device's peak that is), and what FP16
gains over TF32 in two ways:
  table-style   TF32 in NCHW against FP16 in NHWC, as published tables compare
  fair          both in the layout that is best for them
Writes OUTPUT.csv, OUTPUT.json and OUTPUT.svg, with published figures beside ours. What a device cannot do is a
row that says so.

variants (--variant), part of every figure's name:
  torchvision   ResNet v1.5, AlexNet at 224 pixels, 1000 classes
  table         of the published table's harness: ResNet v1, AlexNet at 227 pixels with 384 channels in its fourth
                convolution, 1001 classes

Batch sizes are that harness' for one GPU with 32 or 40 GB (--memory), FP16 twice that of FP32:
  ResNet-50 192/384 or 224/448, ResNet-152 96/192 or 112/200, VGG-16 like ResNet-50, AlexNet 1536/3072 or 1792/3584
On a CPU they are scaled by 1/64, and three steps are timed after one. Smaller still, in seconds:
  bench_precision_table --models resnet50 --scale 0.01 --pixels 64
A figure is the median of up to nine windows of steps. Run it on a quiet machine.
)";

const std::vector<std::string> kModels = {"resnet50", "resnet152", "vgg16", "alexnet"};
const std::vector<std::string> kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
const std::vector<std::string> kLayouts = {"nchw", "nhwc"};
const std::vector<std::string> kModes = {"eager", "graph"};

void check_known(const char* option, const std::vector<std::string>& known, std::vector<std::string>& given) {
  if (given.empty()) given = known;
  for (const std::string& one : given) {
    if (std::find(known.begin(), known.end(), one) != known.end()) continue;
    std::string words;
    for (const std::string& word : known) words += (words.empty() ? "" : ", ") + word;
    throw UsageError(std::string(option) + " knows no '" + one + "': choose from " + words);
  }
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  Choice& choice = options.choice;
  std::string output;
  std::string published = std::string(HOLDFAST_SOURCE_DIR) + "/bench/precision_table/published.csv";
  CLI::App app(kHelp, "bench_precision_table");
  app.add_option("--models", choice.models, "which models, separated by commas (all)")->delimiter(',');
  app.add_option("--precisions,--precision", choice.precisions, "of fp32, tf32, fp16, bf16 (all)")
      ->delimiter(',');
  app.add_option("--layouts", choice.layouts, "of nchw, nhwc (both)")->delimiter(',');
  app.add_option("--modes", choice.modes, "of eager, graph (both): step by step, or as a CUDA graph")
      ->delimiter(',');
  app.add_option("--variant", options.variant, "torchvision or table (torchvision)");
  app.add_option("--device", options.device, "cpu or cuda (cuda where there is one)");
  app.add_option("--memory", options.memory, "batch sizes for a GPU of 32 or 40 GB (by the device's memory)");
  app.add_option("--scale", options.scale, "of the batch sizes (1 on a GPU, 1/64 on a CPU)");
  app.add_option("--pixels", options.pixels, "the pictures' side (what the model is made for)");
  app.add_option("--steps", options.steps, "timed steps (99 on a GPU, 3 on a CPU)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--warm-up", options.warm_up, "steps before those (11 on a GPU, 1 on a CPU)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--threads", options.threads, "of a CPU (one a core)")->check(CLI::Range(1, 4096));
  app.add_option("--peak", options.peak,
                 "dense TFLOP/s of the device: one number, or tf32=156,fp16=312 (known devices: theirs)");
  app.add_option("--published", published, "published figures, a CSV (bench/precision_table/published.csv)");
  app.add_option("--output", output, "name of the files without .csv, .json and .svg");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    throw UsageError(std::string(error.what()) + " (see --help)");
  }
  check_known("--models", kModels, choice.models);
  check_known("--precisions", kPrecisions, choice.precisions);
  check_known("--layouts", kLayouts, choice.layouts);
  check_known("--modes", kModes, choice.modes);
  std::vector<std::string> one = {options.variant};
  check_known("--variant", {"torchvision", "table"}, one);
  one = {options.device.empty() ? "cpu" : options.device};
  check_known("--device", {"cpu", "cuda"}, one);
  if (options.memory && *options.memory != 32 && *options.memory != 40) {
    throw UsageError("--memory is 32 or 40, not " + std::to_string(*options.memory));
  }
  if (options.scale && !(*options.scale > 0 && *options.scale <= 1000)) {
    throw UsageError("--scale is a factor above 0");
  }
  if (options.pixels < 0) throw UsageError("--pixels must not be negative");
  options.published = published;
  options.output = output.empty()
                       ? std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                             "bench_precision_table"
                       : std::filesystem::path(output);
  return options;
}

}  // namespace holdfast::bench
