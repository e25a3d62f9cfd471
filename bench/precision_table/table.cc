#include "table.h"

#include <algorithm>
#include <cmath>

#include "../median.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

struct Batches {
  const char* model;
  std::int64_t full_32, half_32, full_40, half_40;
};
constexpr Batches kBatches[] = {{"resnet50", 192, 384, 224, 448},
                                {"resnet152", 96, 192, 112, 200},
                                {"vgg16", 192, 384, 224, 448},
                                {"alexnet", 1536, 3072, 1792, 3584}};

// The quickest of those that fit; NaN: none was measured. `layout` empty: any.
double best(const std::vector<Row>& rows, const Ratio& of, const std::string& precision,
            const std::string& layout) {
  double best = kNotMeasured;
  for (const Row& row : rows) {
    if (!row.measured() || !row.counts_for_ratios || row.cell.model != of.model || row.cell.mode != of.mode ||
        row.cell.precision != precision || (!layout.empty() && row.cell.layout != layout)) {
      continue;
    }
    if (!(best >= row.images_per_second())) best = row.images_per_second();
  }
  return best;
}

std::string why_not(const std::vector<Row>& rows, const Ratio& of, const std::string& precision) {
  std::string why = precision + " was not asked for";
  for (const Row& row : rows) {
    if (row.cell.model != of.model || row.cell.mode != of.mode || row.cell.precision != precision) continue;
    if (row.measured()) return "";
    why = row.why;
  }
  return why;
}

}  // namespace

double Row::seconds_per_step() const { return measured() ? median(seconds) : kNotMeasured; }

double Row::images_per_second() const { return static_cast<double>(cell.batch) / seconds_per_step(); }

double Row::tflops() const { return images_per_second() * train_flops / 1e12; }

double Row::utilisation() const { return tflops() / peak_tflops; }

std::int64_t batch_of(const std::string& model, const std::string& precision, int memory, double scale) {
  const bool half = precision == "fp16" || precision == "bf16";
  for (const Batches& one : kBatches) {
    if (model != one.model) continue;
    const std::int64_t batch =
        memory == 32 ? (half ? one.half_32 : one.full_32) : (half ? one.half_40 : one.full_40);
    return std::max<std::int64_t>(2, std::llround(static_cast<double>(batch) * scale));
  }
  throw UsageError("there are no published batch sizes for '" + model + "'");
}

std::vector<Cell> planned(const Choice& choice) {
  std::vector<Cell> cells;
  for (const std::string& model : choice.models) {
    for (const std::string& precision : choice.precisions) {
      for (const std::string& layout : choice.layouts) {
        for (const std::string& mode : choice.modes) {
          cells.push_back({.model = model,
                           .precision = precision,
                           .layout = layout,
                           .mode = mode,
                           .batch = batch_of(model, precision, choice.memory, choice.scale)});
        }
      }
    }
  }
  return cells;
}

std::vector<Ratio> ratios_of(const std::vector<Row>& rows, const std::string& base) {
  std::vector<Ratio> ratios;
  for (const Row& row : rows) {
    const auto known = [&](const Ratio& one) {
      return one.model == row.cell.model && one.mode == row.cell.mode;
    };
    if (std::any_of(ratios.begin(), ratios.end(), known)) continue;
    Ratio ratio{.model = row.cell.model, .mode = row.cell.mode, .base = base};
    ratio.table_style = best(rows, ratio, "fp16", "nhwc") / best(rows, ratio, base, "nchw");
    ratio.fair = best(rows, ratio, "fp16", "") / best(rows, ratio, base, "");
    if (std::isnan(ratio.table_style) && std::isnan(ratio.fair)) {
      ratio.why = why_not(rows, ratio, base);
      if (ratio.why.empty()) ratio.why = why_not(rows, ratio, "fp16");
      if (ratio.why.empty()) ratio.why = "no graph could be captured";
    }
    ratios.push_back(std::move(ratio));
  }
  return ratios;
}

}  // namespace holdfast::bench
