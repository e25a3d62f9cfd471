#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "../shared/program.h"
#include "../shared/root.h"
#include "catalogue.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr char kHelp[] =
    R"(Training throughput of the eight models of the published AWS P4d table, in every precision, layout and mode, on
synthetic batches that are made on the device: forward, backward and update (SGD with momentum; BERT: LAMB), for
FP16 with loss scaling. Prints samples/s with published figures beside them, the model's own FLOP/s (and which share
of the device's peak that is), and what FP16 gains over TF32 in two ways, beside what was published of it:
  table-style   TF32 in NCHW against FP16 in NHWC, as published tables compare
  fair          both in the layout that is best for them; not measured unless each has rows in both layouts
A column such as A100/V100 is the published speed-up of the newer device over the older, of the row's model.
Writes OUTPUT.csv, OUTPUT.json and OUTPUT.svg. What a device cannot do is a row that says so; one that does not fit
into memory says what it needs, by an estimate, and which batch fits.

Without --rows, --models, --precisions, --layouts and --modes these are the published table's rows, each model in FP16
(NHWC) and in TF32 (NCHW) once, as graphs; on a CPU in FP32 for TF32, and eager. --rows all is every combination: hours.

rows (--rows), chosen by words of their names, joined by /; all words must fit:
  resnet50 resnet152 inception3 inception4 vgg16 alexnet ssd300 bert-128 bert-512 (bert: both)
  fp32 tf32 fp16 bf16      nchw nhwc (not BERT's)      eager graph      x1 x16 (BERT's accumulation, --accumulate)
for example
  --rows resnet50/fp16,fp32/nchw/eager        all of ResNet-50 in FP16, and everything in FP32, NCHW, eager
  --rows bert/eager/x16
and beside the table, where their own word is given:
  global           BERT's whole update: the table's 65536 (128 tokens) or 32768 (512) sequences times --scale, in
                   passes of the table's batch, of --micro-batch or of the largest that fits, whichever is smaller,
                   and at least 16 of them; without --steps three updates are timed after one, each of minutes
  inception3-aux   Inception v3 with its auxiliary head; torchvision alone
  ssd300-matched   SSD300 on ResNet-34 with labelled boxes matched to anchors and its own loss
  ssd300-vgg       the same on VGG-16; torchvision alone
  --rows bert/fp16/eager/global --scale 0.02
  --rows ssd300-vgg/fp32,inception3-aux/fp32 --variant torchvision

variants (--variant), part of every figure's name:
  torchvision   ResNet v1.5, AlexNet at 224 pixels, 1000 classes; SSD300 as MLPerf's; BERT with GELU by erf
  table         of the published table's harnesses: ResNet v1, AlexNet at 227 pixels with 384 channels in its fourth
                convolution, 1001 classes; Inception without gamma in its norms; BERT with GELU by tanh
Inception v3 is without its second head in both, SSD300 is on ResNet-34 and computes its published harness' step:
colours jittered, targets drawn, two sorts.

Published figures (--published) are of whole machines, divided by their GPUs. In the file beside this program are the
AWS P4d announcement's, and NVIDIA's of BERT. Another FILE takes its place: a CSV of
model,device,precision,gpus,samples_per_second,source.

batch norms (--bn), of NHWC rows, also a column of the table; NCHW rows always have Torch's:
  aten     Torch's operators, one by one
  fused    own kernels, with additions and ReLUs, in every type; slow on a CPU; of ResNets, Inceptions and SSD300

graph: with SGD a replay is the whole step. LAMB counts its updates on the host: a replay of BERT's is one pass,
forward and backward, and its update stays outside of the graph, launch by launch.

Batch sizes are the harnesses' for one GPU with 32 or 40 GB (--memory), FP32/FP16:
  ResNet-50, VGG-16 192/384 or 224/448, ResNet-152 96/192 or 112/200, Inception v3 192/384 or 224/360, Inception v4
  48/96 or 56/112, AlexNet 1536/3072 or 1792/3584, SSD300 96/192 or 112/224; BERT-Large with 128 tokens 32/64 or
  64/64, with 512 tokens 8/8 or 8/16 sequences, once (x1) and 16 times (x16) before an update
or --micro-batch for every row, without --scale. Rows beside the table have the batches of their models in it.
On a CPU they are scaled by 1/64, and three steps are timed after one.

peers (--peers): the same in Python beside each row, on the same weights and batch, without dropout, in turns of at
least nine windows; a column says how many times as fast ours is. Words joined by +:
  eager                                        a plain loop
  compile, reduce-overhead, max-autotune       torch.compile, in these modes; minutes before it begins
  fused                                        SGD with fused=True; BERT's LAMB is not in Torch: there it says nothing
Install them once: bench/peers/install. With --no-update nobody updates. First losses are compared: each row says by
which share they differ, and one in FP32 that differs by more than 1e-4 ends the program with exit code 1. Goals that
the rows are judged by: on a CPU in FP32, eager, 1.00 x eager; on a GPU in FP16, NHWC and BERT, 1.00 x eager, for
ResNet-50 1.02 x eager and 0.95 x max-autotune.

An interruption (SIGTERM, Ctrl-C, a notice of the cloud) costs the row in hand: finished ones are committed to
OUTPUT.run, the program ends with 75, and the same command goes on. Options that change figures must be the same
then (78 otherwise). A table that is complete leaves no such folder; but rows in OUTPUT.json that this very build measured
with the same options are kept by the next run. --fresh measures them again.

Quickly, to see that it works:
  bench_precision_table --rows resnet50/eager --scale 0.01 --pixels 64
  bench_precision_table --rows bert/eager --tiny-bert
A figure is the median of up to nine windows of steps. Run it on a quiet machine.
)";

const std::vector<std::string> kPrecisions = {"fp32", "tf32", "fp16", "bf16"};
const std::vector<std::string> kLayouts = {"nchw", "nhwc"};
const std::vector<std::string> kModes = {"eager", "graph"};
const std::vector<std::string> kPeerWords = {"eager", "compile", "reduce-overhead", "max-autotune", "fused"};

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.push_back(kind.name);
  return names;
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) {
    if (kind.in_table) names.push_back(kind.name);
  }
  return names;
}

void check_known(const char* option, const std::vector<std::string>& known, std::vector<std::string>& given) {
  if (given.empty()) given = known;
  for (const std::string& one : given) {
    if (std::find(known.begin(), known.end(), one) != known.end()) continue;
    std::string words;
    for (const std::string& word : known) words += (words.empty() ? "" : ", ") + word;
    throw UsageError(std::string(option) + " knows no '" + one + "': choose from " + words);
  }
}

void check_one(const char* option, const std::vector<std::string>& known, const std::string& given) {
  std::vector<std::string> one = {given};
  check_known(option, known, one);
}

void check_peers(const std::vector<std::string>& peers) {
  for (const std::string& peer : peers) {
    std::size_t begin = 0;
    while (begin <= peer.size()) {
      const std::size_t end = std::min(peer.find('+', begin), peer.size());
      check_one("--peers", kPeerWords, peer.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (!peers.empty() && !std::filesystem::exists(root_folder() / ".deps/peers/bin/python")) {
    throw UsageError("--peers needs PyTorch in .deps/peers: bench/peers/install gets it");
  }
}

void add_options(CLI::App& app, Options& options) {
  Choice& choice = options.choice;
  app.add_option("--rows", choice.rows, "which rows, separated by commas, or all (the published ones)")
      ->delimiter(',');
  app.add_option("--models", choice.models, "which models (all of the table)")->delimiter(',');
  app.add_option("--precisions,--precision", choice.precisions, "of fp32, tf32, fp16, bf16 (all)")
      ->delimiter(',');
  app.add_option("--layouts", choice.layouts, "of nchw, nhwc (both)")->delimiter(',');
  app.add_option("--modes", choice.modes, "of eager, graph (both): step by step, or as a CUDA graph")
      ->delimiter(',');
  app.add_option("--accumulate", choice.accumulations, "BERT's forward passes of an update (1,16)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65536));
  app.add_option("--variant", options.variant, "torchvision or table (torchvision)");
  app.add_option("--bn", options.bn,
                 "batch norms of NHWC rows, with what stands behind them: aten or fused (aten)");
  app.add_option("--device", options.device, "cpu or cuda (cuda where there is one)");
  app.add_option("--memory", options.memory, "batch sizes for a GPU of 32 or 40 GB (by the device's memory)");
  app.add_option("--scale", options.scale,
                 "of the batch sizes, and of global batches (1 on a GPU, 1/64 on a CPU)");
  app.add_option("--micro-batch", choice.micro_batch, "samples of a forward pass (the table's)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--pixels", options.pixels,
                 "the pictures' side (what the model is made for; SSD300 always)");
  app.add_flag("--tiny-bert", options.tiny_bert,
               "2 layers of 64 in the place of BERT-Large: to see that things work");
  app.add_flag("!--no-update", options.update, "forward and backward alone");
  auto* steps = app.add_option("--steps", options.steps, "timed steps of a row (99 on a GPU, 3 on a CPU)")
                    ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "as many timed steps as go into so long, instead of --steps")
      ->check(CLI::Range(0.001, 1e6))
      ->excludes(steps);
  app.add_option("--warm-up", options.warm_up, "steps before those (11 on a GPU, 1 on a CPU)")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--free", options.free_gb, "GB that a row may take (what is free)")
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--peers", options.peers, "in Python, separated by commas (none)")->delimiter(',');
  app.add_option("--threads", options.threads, "of a CPU (one a core)")->check(CLI::Range(1, 4096));
  app.add_option("--peak", options.peak,
                 "dense TFLOP/s of the device: one number, or tf32=156,fp16=312 (known devices: theirs)");
  app.add_flag("--fresh", options.fresh, "measure every row: neither go on nor keep rows of this build");
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  Choice& choice = options.choice;
  std::string output;
  std::string published = root_folder() / "bench/precision_table/published.csv";
  CLI::App app(kHelp, "bench_precision_table");
  add_options(app, options);
  app.add_option("--published", published, "published figures, a CSV (bench/precision_table/published.csv)");
  app.add_option("--output", output,
                 "name of the files without .csv, .json and .svg (bench_precision_table, in the folder above "
                 "the program's)");
  if (!parsed(app, argc, argv)) return std::nullopt;
  options.default_rows = choice.rows.empty() && choice.models.empty() && choice.precisions.empty() &&
                         choice.layouts.empty() && choice.modes.empty();
  if (choice.rows == std::vector<std::string>{"all"}) choice.rows.clear();
  if (choice.models.empty()) choice.models = table_names();
  check_known("--models", model_names(), choice.models);
  check_known("--precisions", kPrecisions, choice.precisions);
  check_known("--layouts", kLayouts, choice.layouts);
  check_known("--modes", kModes, choice.modes);
  check_one("--variant", {"torchvision", "table"}, options.variant);
  check_one("--bn", {"aten", "fused"}, options.bn);
  check_one("--device", {"cpu", "cuda"}, options.device.empty() ? "cpu" : options.device);
  check_peers(options.peers);
  if (options.memory && *options.memory != 32 && *options.memory != 40) {
    throw UsageError("--memory is 32 or 40, not " + std::to_string(*options.memory));
  }
  if (options.scale && !(*options.scale > 0 && *options.scale <= 1000)) {
    throw UsageError("--scale is a factor above 0");
  }
  if (options.pixels < 0) throw UsageError("--pixels must not be negative");
  static_cast<void>(planned(choice));  // --rows
  options.published = published;
  if (app.count("--published") == 0) {
    options.printed = options.published.parent_path() / "printed_speed_ups.csv";
  }
  options.output = output.empty()
                       ? std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                             "bench_precision_table"
                       : std::filesystem::path(output);
  return options;
}

}  // namespace holdfast::bench
