#include "measure.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "captured.h"
#include "holdfast/base/error.h"
#include "holdfast/models/picture_model.h"
#include "holdfast/precision/precision.h"
#include "training.h"

namespace holdfast::bench {
namespace {

std::vector<double> windows(const std::function<void()>& step, const Setup& setup) {
  using Clock = std::chrono::steady_clock;
  const int count = std::min(setup.steps, 9);
  std::vector<double> seconds;
  for (int window = 0; window < count; ++window) {
    const int steps = setup.steps * (window + 1) / count - setup.steps * window / count;
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    wait_for(setup.device);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / steps);
  }
  return seconds;
}

void measure_into(Row& row, const Setup& setup) {
  const Precision precision = parse_precision(row.cell.precision);
  require_supported(precision, setup.device);
  const bool graph = row.cell.mode == "graph";
  if (graph) {
    row.why = why_no_graph(setup.device);
    if (!row.why.empty()) return;
  }
  set_math_mode(precision);
  torch::manual_seed(1);
  const SideStream side(setup.device);
  PictureModel model = make_picture_model({.name = row.cell.model, .variant = parse_variant(setup.variant)});
  row.pixels = setup.pixels != 0 ? setup.pixels : model.pixels;
  if (row.pixels < model.smallest_pixels) {
    row.why = "it needs pictures of at least " + std::to_string(model.smallest_pixels) + " pixels";
    return;
  }
  row.train_flops = count_work(model, row.pixels).train_flops;
  const auto on_device = at::TensorOptions(setup.device);
  const at::Tensor pictures = at::randn({row.cell.batch, 3, row.pixels, row.pixels}, on_device);
  const at::Tensor labels = at::randint(model.num_classes, {row.cell.batch}, on_device.dtype(at::kLong));
  // A rate so small that losses stay finite on pictures of noise.
  Training training(std::move(model), precision, row.cell.layout, {pictures, labels},
                    torch::optim::SGDOptions(1e-4).momentum(0.9).weight_decay(4e-5));
  for (int i = 0; i < setup.warm_up; ++i) training.step();
  wait_for(setup.device);
  std::optional<CapturedStep> captured;
  if (graph) {
    try {
      captured.emplace([&] { training.step(); });
    } catch (const Error& error) {
      row.note = std::string("measured eagerly, as the capture failed: ") + error.what();
      row.counts_for_ratios = false;
    }
  }
  if (captured) {
    captured->replay();  // the first one uploads the graph
    wait_for(setup.device);
    row.seconds = windows([&] { captured->replay(); }, setup);
  } else {
    row.seconds = windows([&] { training.step(); }, setup);
  }
  row.loss = training.loss();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Row measure(const Cell& cell, const Setup& setup) {
  Row row{.cell = cell};
  try {
    measure_into(row, setup);
  } catch (const UsageError& error) {
    row.why = error.what();
  } catch (const c10::OutOfMemoryError& error) {
    row.why = "it does not fit into memory; choose a smaller --scale";
  } catch (const c10::Error& error) {
    row.why = "it failed: " + first_line(error.what_without_backtrace());
  }
  if (!row.why.empty()) row.seconds.clear();
  row.note = first_line(row.note);
  release_memory();
  return row;
}

}  // namespace holdfast::bench
