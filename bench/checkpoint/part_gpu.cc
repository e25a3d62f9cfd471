// The rows of a machine with a GPU: what a save blocks and costs there. Left out aloud elsewhere.
#include <ATen/Context.h>

#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

enum class Saves { none, one, every_step };

double window(TrainingState& state, Ours& ours, int steps, Saves saves) {
  const double begin = now();
  for (int i = 0; i < steps; ++i) {  // the copy of a save is ended by the next step
    ours.step(saves == Saves::every_step ? i + 1 < steps : saves == Saves::one && i == 0);
  }
  state.wait_for_device();
  const double seconds = now() - begin;
  if (saves != Saves::none) ours.wait();
  return seconds;
}

// Percent of the training that `saves` cost.
Row share(Bench& bench, TrainingState& state, Ours& ours, Saves saves, const std::string& key,
          const std::string& what, double goal) {
  constexpr int kSteps = 10;
  std::vector<double> lost;
  std::vector<double> without;
  for (int pair = -1; pair < bench.options.windows; ++pair) {
    bench.progress("gpu, " + what, pair, bench.options.windows);
    const bool save_first = pair % 2 != 0;
    const double first = window(state, ours, kSteps, save_first ? saves : Saves::none);
    const double second = window(state, ours, kSteps, save_first ? Saves::none : saves);
    if (pair < 0) continue;
    lost.push_back(save_first ? first - second : second - first);
    without.push_back(save_first ? second : first);
  }
  const double cost = median(lost);
  return {.key = key,
          .what = what,
          .value = cost,
          .text = milliseconds(cost) + " in " + milliseconds(median(without)),
          .of = "% of the training",
          .ratio = cost / median(without) * 100,
          .goal = Goal{Goal::Kind::at_most, goal},
          .samples = lost,
          .interval = interval_of_ratio(lost, without, 100)};
}

}  // namespace

void measure_gpu(Bench& bench) {
  if (!at::hasCUDA()) {
    bench.report.leave_out("gpu",
                           "there is no CUDA device here, or LibTorch's CUDA half is not linked "
                           "(HOLDFAST_CUDA)");
    return;
  }
  const StateSpec spec = state_named("resnet50");
  Section section{
      .part = "gpu", .state = spec.name, .title = "resnet50 on the GPU, FP16 channels_last", .rows = {}};
  struct Case {
    int pixels;
    int batch;
    double goal;  // per cent lost at a save every 10 steps
  };
  for (const auto& [pixels, batch, goal] : {Case{32, 512, 0.5}, Case{224, 256, 0.3}}) {
    const std::string size =
        std::to_string(batch) + " pictures of " + std::to_string(pixels) + "x" + std::to_string(pixels);
    TrainingState state(spec,
                        {.batch = batch, .pixels = pixels, .device = at::Device(at::kCUDA, 0), .half = true});
    Ours ours(state, bench.scratch.path() / ("gpu-" + std::to_string(pixels)));
    for (int i = 0; i < 5; ++i) ours.step(false);
    std::vector<double> blocked;
    for (int i = 0; i < bench.options.repetitions; ++i) {
      blocked.push_back(ours.save_beside_training().blocked);
      ours.step(false);
    }
    section.rows.push_back({.key = "gpu.blocked." + std::to_string(pixels),
                            .what = "training thread blocked by a save, " + size,
                            .value = median(blocked) * 1e3,
                            .text = milliseconds(median(blocked)),
                            .goal = Goal{Goal::Kind::at_most, 5},
                            .samples = blocked,
                            .note = "the goal is in ms"});
    section.rows.push_back(share(bench, state, ours, Saves::one, "gpu.lost." + std::to_string(pixels),
                                 "saved every 10 steps, " + size, goal));
    section.rows.push_back(share(bench, state, ours, Saves::every_step,
                                 "gpu.lost.every_step." + std::to_string(pixels),
                                 "asked for at every step, " + size, 3.0));
  }
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
