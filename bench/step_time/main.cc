// Wall time of a training step, ours and Python's, side by side: see --help.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "../precision_table/device.h"
#include "../precision_table/peer.h"
#include "../precision_table/peer_job.h"
#include "../shared/median.h"
#include "../shared/program.h"
#include "../shared/root.h"
#include "../shared/temporary_folder.h"
#include "examples/models/picture_model.h"
#include "holdfast/base/error.h"
#include "holdfast/base/freed_memory.h"
#include "job.h"

namespace holdfast::bench { namespace {

constexpr char kHelp[] =
    R"(Wall time of a training step (forward, backward, SGD with momentum), ours against the same model in Python:
same weights, same batch, same number of threads, all of them taking turns. Prints medians, how much longer the
peer takes, and how far losses lie apart: the first ones, and at most after equally many steps.

peers (--peers), words joined by +:
  eager                                        a plain loop; the default optimizer
  compile, reduce-overhead, max-autotune       torch.compile, in these modes; minutes before it begins
  fused                                        the optimizer with fused=True
  amp                                          autocast and channels_last, against ours in the same: BF16 on a CPU,
                                               FP16 with loss scaling on a GPU
models (--models): mlp (784-128-128-10), resnet50, resnet152, vgg16, alexnet, inception_v3, inception_v4, with 10
classes and without dropout

--deterministic adds ours with deterministic kernels, as resnet50_cifar10 trains on a GPU: what bit-exact resume
costs there. Goals are a CPU's, and judged where first losses agree to 1e-4. A GPU's goals are judged by
  bench_precision_table --rows resnet50/fp16/nhwc/graph --bn fused --peers eager,max-autotune --seconds 3 --warm-up 11

The peers are installed once by bench/peers/install. Run it on a quiet machine.
)";

struct Options {
  std::vector<std::string> models = {"mlp", "resnet50"};
  std::vector<std::string> peers = {"eager", "eager+fused", "compile+fused", "eager+amp", "eager+amp+fused"};
  std::string variant = "torchvision";
  std::string device = at::hasCUDA() ? "cuda" : "cpu";
  std::int64_t batch = 0;
  std::int64_t pixels = 0;
  int repetitions = 9;
  int steps = 0;
  int threads = 0;
  bool deterministic = false;
  std::string output;
};

// As the example trains on a GPU.
class DeterministicKernels {
 public:
  DeterministicKernels() { set(true); }
  ~DeterministicKernels() { set(false); }
  DeterministicKernels(const DeterministicKernels&) = delete;
  DeterministicKernels& operator=(const DeterministicKernels&) = delete;

 private:
  static void set(bool on) {
    at::globalContext().setBenchmarkCuDNN(!on);
    at::globalContext().setDeterministicCuDNN(on);
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(!on);
  }
};

struct Rival {
  std::string name;
  bool amp = false;
  std::function<Window(int)> steps;
  std::unique_ptr<Training> ours;
  std::unique_ptr<Peer> peer;
  double first_loss = 0;  // before any update
  std::vector<Window> windows;

  void warm_up(int count) {
    first_loss = steps(1).loss;
    steps(count);
  }
};

Window our_window(Training& training, c10::Device device, int steps) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < steps; ++i) training.step();
  const double loss = training.loss();
  wait_for(device);
  return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          .loss = loss};
}

bool has_word(const std::string& words, const std::string& word) {
  return ("+" + words + "+").find("+" + word + "+") != std::string::npos;
}

double median_seconds(const Rival& rival, int steps) {
  std::vector<double> seconds;
  for (const Window& window : rival.windows) seconds.push_back(window.seconds / steps);
  return median(seconds);
}

// How often ours is done while the peer makes one step: the median over the repetitions, in which both ran
// one after the other.
double times_as_fast(const Rival& ours, const Rival& theirs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < ours.windows.size(); ++i) {
    ratios.push_back(theirs.windows[i].seconds / ours.windows[i].seconds);
  }
  return median(ratios);
}

double largest_difference(const Rival& ours, const Rival& theirs) {
  double largest = 0;
  for (std::size_t i = 0; i < ours.windows.size(); ++i) {
    largest = std::max(largest, std::abs(ours.windows[i].loss - theirs.windows[i].loss));
  }
  return largest;
}

// 0: none. A GPU's goals are bench_precision_table's: here every step is eager, with Torch's norms.
double goal_of(const std::string& model, const JobOptions& job, const Rival& rival) {
  if (!job.device.is_cpu() || !rival.name.starts_with("eager") || rival.amp) return 0;
  return model == "mlp" ? 1.3 : model == "resnet50" ? 1.0 : 0;
}

// FP32 alone: other types round where they like.
bool losses_agree(const Rival& ours, const Rival& theirs) {
  const double difference = std::abs(ours.first_loss - theirs.first_loss);
  return ours.amp || difference <= 1e-4 * std::max(1.0, std::abs(theirs.first_loss));
}

nlohmann::ordered_json compare(const Options& options, const std::string& model) {
  const bool mlp = model == "mlp";
  const c10::Device device(options.device == "cuda" ? c10::kCUDA : c10::kCPU);
  const JobOptions job{.model = model,
                       .variant = options.variant,
                       .batch = options.batch != 0 ? options.batch
                                : mlp              ? 64
                                : device.is_cuda() ? 256
                                                   : 16,
                       .pixels = mlp                   ? 0
                                 : options.pixels != 0 ? options.pixels
                                 : device.is_cuda()    ? 224
                                                       : 64,
                       .device = device};
  const int steps = options.steps != 0 ? options.steps : mlp ? 300 : 1;
  const TemporaryFolder folder;
  set_math_mode(Precision::fp32);
  write_job({.model = model, .variant = options.variant, .classes = kJobClasses, .device = device},
            *our_training(job, false), folder.path());
  std::vector<Rival> rivals;
  for (const bool amp : {false, true}) {
    const auto wanted = [&](const std::string& peer) { return has_word(peer, "amp") == amp; };
    const bool compared = options.deterministic && !amp;
    if (!compared && std::none_of(options.peers.begin(), options.peers.end(), wanted)) continue;
    Rival& ours = rivals.emplace_back();
    ours.name = amp ? "ours+amp" : "ours";
    ours.amp = amp;
    ours.ours = our_training(job, amp);
    ours.steps = [&training = *ours.ours, device](int count) { return our_window(training, device, count); };
  }
  if (options.deterministic) {
    Rival& ours = rivals.emplace_back();
    ours.name = "ours+deterministic";
    ours.ours = our_training(job, false);
    ours.steps = [&training = *ours.ours, device](int count) {
      const DeterministicKernels deterministic;
      return our_window(training, device, count);
    };
  }
  std::printf("\n%s%s, batch %lld%s, %s, %d threads; medians of %d windows of %d %s\n", model.c_str(),
              mlp ? "" : (" (" + options.variant + ")").c_str(), static_cast<long long>(job.batch),
              mlp ? "" : (", " + std::to_string(job.pixels) + " pixels").c_str(), options.device.c_str(),
              at::get_num_threads(), options.repetitions, steps, steps == 1 ? "step" : "steps");
  std::fflush(stdout);
  auto left_out = nlohmann::ordered_json::array();
  const std::filesystem::path root = root_folder();
  for (const std::string& name : options.peers) {
    Rival rival;
    rival.name = name;
    rival.amp = has_word(name, "amp");
    try {
      rival.peer = std::make_unique<Peer>(root, folder.path(), name);
      rival.steps = [peer = rival.peer.get()](int count) { return peer->steps(count); };
      rival.warm_up(mlp ? steps : 1);  // and torch.compile does its work
    } catch (const Error& error) {
      std::printf("  left out: %s: %s\n", name.c_str(), error.what());
      left_out.push_back({{"peer", name}, {"why", error.what()}});
      continue;
    }
    rivals.push_back(std::move(rival));
  }
  for (Rival& rival : rivals) {
    if (rival.ours) rival.warm_up(mlp ? steps : 1);
  }
  for (int i = 0; i < options.repetitions; ++i) {  // there and back again: nobody is always first
    for (Rival& rival : rivals) rival.windows.push_back(rival.steps(steps));
    std::reverse(rivals.begin(), rivals.end());
  }
  if (options.repetitions % 2 == 1) std::reverse(rivals.begin(), rivals.end());

  auto rows = nlohmann::ordered_json::array();
  for (const Rival& rival : rivals) {
    nlohmann::ordered_json row = {{"who", rival.name}, {"seconds_per_step", median_seconds(rival, steps)}};
    std::printf("  %-24s %10.3f ms", rival.name.c_str(), median_seconds(rival, steps) * 1e3);
    const auto found = std::find_if(rivals.begin(), rivals.end(),
                                    [&](const Rival& one) { return one.ours && one.amp == rival.amp; });
    const Rival& ours = *found;
    if (rival.name == "ours+deterministic") {
      const double price = times_as_fast(ours, rival);
      std::printf("   %.2f times the time of ours", price);
      row["times_the_time_of_ours"] = price;
    } else if (!rival.ours) {
      const double ratio = times_as_fast(ours, rival);
      const double first = std::abs(ours.first_loss - rival.first_loss);
      const double difference = largest_difference(ours, rival);
      const double goal = goal_of(model, job, rival);
      const bool agree = losses_agree(ours, rival);
      std::printf("   ours is %.2f times as fast, first losses within %.2g, later ones %.2g", ratio, first,
                  difference);
      if (!agree) std::printf("   THE LOSSES DIFFER: not the same computation");
      if (goal > 0 && agree) std::printf("   goal >= %.2f: %s", goal, ratio >= goal ? "met" : "missed");
      row["ours_times_as_fast"] = ratio;
      row["first_loss_difference"] = first;
      row["largest_loss_difference"] = difference;
      if (goal > 0) row["goal"] = goal;
      row["torch"] = rival.peer->version();
    }
    std::printf("\n");
    row["last_loss"] = rival.windows.back().loss;
    rows.push_back(std::move(row));
  }
  return {{"model", model},       {"variant", options.variant}, {"batch", job.batch},
          {"pixels", job.pixels}, {"steps_of_a_window", steps}, {"rows", rows},
          {"left_out", left_out}};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(kHelp, "bench_step_time");
  app.add_option("--models", options.models, "separated by commas (mlp,resnet50)")->delimiter(',');
  app.add_option("--peers", options.peers, "separated by commas")->delimiter(',')->capture_default_str();
  app.add_option("--variant", options.variant, "of the models: torchvision or table (torchvision)");
  app.add_option("--device", options.device, "cpu or cuda (cuda where there is one)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--batch", options.batch, "samples of a step (mlp 64, others 16; on a GPU 256)")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--pixels", options.pixels, "the pictures' side (64; on a GPU 224)")
      ->check(CLI::Range(32, 1024));
  app.add_option("--repetitions", options.repetitions, "interleaved (9)")->check(CLI::Range(1, 1000));
  app.add_option("--steps", options.steps, "of a window (mlp 300, others 1)")->check(CLI::Range(1, 1000000));
  app.add_option("--threads", options.threads, "of a CPU, everybody's (one a core)")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--deterministic", options.deterministic,
               "ours with deterministic kernels as well: their price");
  app.add_option("--output", options.output, "a JSON file for the figures, too");
  if (!parsed(app, argc, argv)) return 0;
  parse_variant(options.variant);
  const auto& known = picture_model_names();
  for (const std::string& model : options.models) {
    if (model != "mlp" && std::find(known.begin(), known.end(), model) == known.end()) {
      throw UsageError("there is no model '" + model + "' (--models; see --help)");
    }
  }
  if (options.device == "cuda" && !at::hasCUDA()) {
    throw UsageError("there is no CUDA device here, or no CUDA in this build (HOLDFAST_CUDA): --device cpu");
  }
  if (!std::filesystem::exists(root_folder() / ".deps/peers/bin/python")) {
    throw UsageError("the peers are not installed; run bench/peers/install");
  }
  at::globalContext().setBenchmarkCuDNN(true);
  if (options.deterministic) setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  if (options.threads != 0) at::set_num_threads(options.threads);
  nlohmann::ordered_json all = {{"bench", "step_time"},
                                {"device", options.device},
                                {"threads", at::get_num_threads()},
                                {"libtorch", TORCH_VERSION},
                                {"models", nlohmann::ordered_json::array()}};
  for (const std::string& model : options.models) all["models"].push_back(compare(options, model));
  if (!options.output.empty()) write_figures(options.output, all);
  return 0;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  holdfast::keep_freed_memory();
  return holdfast::bench::ended_by("bench_step_time", [&] { return holdfast::bench::run(argc, argv); });
}
