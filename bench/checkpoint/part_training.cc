// Training time that one save costs. Pairs of windows of training steps in random order, with and without a save
// after the first step, until it is durable. Ours, and the peers training the same network in Python, take turns
// pair by pair. The interval is the bootstrap's over the pairs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "ours.h"
#include "parts.h"
#include "python_peers.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

constexpr double kInterval = 10;  // steps between two saves

struct Trainer {
  std::string key;
  std::string what;
  std::function<double(bool save)> window;  // seconds
  std::vector<double> lost = {};            // a save, pair by pair
  std::vector<double> without = {};         // a window's seconds

  // How far two windows without a save lie apart.
  double noise() const {
    std::vector<double> apart;
    for (std::size_t i = 1; i < without.size(); ++i) apart.push_back(std::abs(without[i] - without[i - 1]));
    return median(apart);
  }
};

// Of a median: 1.25 standard errors, each 1.48 middle distances.
double doubt_of(const Trainer& trainer) {
  return 1.85 * spread(trainer.lost) / std::sqrt(static_cast<double>(trainer.lost.size()));
}

Row row_of(const Trainer& trainer, int steps) {
  const double lost = median(trainer.lost);
  const double step = median(trainer.without) / steps;
  const double doubt = doubt_of(trainer);
  return {.key = "lost." + trainer.key,
          .what = trainer.what,
          .value = lost,
          .text = milliseconds(lost) + " ± " + milliseconds(doubt),
          .of = "% of it, at every 10 steps",
          .ratio = lost / (kInterval * step) * 100,
          .samples = trainer.lost,
          .note = "a step takes " + milliseconds(step) + "; windows of " + std::to_string(steps) +
                  " steps without a save lie " + milliseconds(trainer.noise()) + " apart (the noise)",
          .interval = interval_of_ratio(trainer.lost, trainer.without, steps / kInterval * 100)};
}

}  // namespace

void measure_training(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 6 * state.bytes() + (16u << 20), "the training part with " + spec.name);
  Ours ours(state, bench.scratch.path() / ("training-" + spec.name));
  std::unique_ptr<PythonPeers> python;
  if (bench.python) {
    python = std::make_unique<PythonPeers>(spec, bench.scratch.folder("training-peers-" + spec.name));
  }
  const int steps = bench.options.window_steps;

  std::vector<Trainer> trainers;
  trainers.push_back({.key = "holdfast", .what = "Holdfast", .window = [&](bool save) {
                        const double begin = now();
                        for (int i = 0; i < steps; ++i) ours.step(save && i == 0);
                        if (save) ours.wait();
                        return now() - begin;
                      }});
  if (python) {
    const auto peer = [&](const char* key, const char* what, const std::string& method) {
      trainers.push_back({.key = key, .what = what, .window = [&, method](bool save) {
                            return python->steps(steps, save ? std::optional(method) : std::nullopt);
                          }});
    };
    peer("torch_save_python", "torch.save + fsync, Python", "torch.save");
    peer("dcp_async", "dcp.async_save, Python", "dcp.async_save");
    peer("dcp_async_cached", "dcp.async_save, cached stager, Python", "dcp.async_save, cached");
  }

  Coin coin;
  for (int pair = -1; pair < bench.options.windows; ++pair) {  // the first warms up
    bench.progress("training, " + spec.name, pair, bench.options.windows);
    for (Trainer& trainer : trainers) {
      settle(bench.scratch.path());
      const bool save_first = coin();
      const double first = trainer.window(save_first);
      settle(bench.scratch.path());
      const double second = trainer.window(!save_first);
      if (pair < 0) continue;
      const double with = save_first ? first : second;
      const double without = save_first ? second : first;
      trainer.lost.push_back(with - without);
      trainer.without.push_back(without);
    }
  }

  Section section{.part = "training",
                  .state = spec.name,
                  .title = spec.name + ", batch 64 at 32x32: training time lost per save, and its share",
                  .rows = {}};
  for (const Trainer& trainer : trainers) section.rows.push_back(row_of(trainer, steps));
  section.rows.front().goal = Goal{Goal::Kind::at_most, 0.9};
  const double mine = median(trainers.front().lost);
  for (std::size_t i = 1; i < trainers.size(); ++i) {
    const double theirs = median(trainers[i].lost);
    Row row{.key = "lost_against." + trainers[i].key,
            .what = "Holdfast's loss against " + trainers[i].what,
            .value = mine,
            .text = milliseconds(mine) + " against " + milliseconds(theirs),
            .of = {}};
    if (theirs <= doubt_of(trainers[i])) {
      row.note = "theirs is lost in its noise: no ratio; take more --windows";
    } else {
      row.of = "of theirs";
      row.ratio = std::max(mine, 0.0) / theirs;
      if (trainers[i].key != "dcp_async_cached") row.goal = Goal{Goal::Kind::at_most, 0.2};
    }
    section.rows.push_back(std::move(row));
  }
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
