// The goals of the rows compared with their Python peers, and of FP16 compared with TF32.
//
//   CPU, FP32, eager mode              1.00 x eager
//   GPU, FP16, NHWC and BERT           1.00 x eager (which is channels_last under autocast)
//   GPU, FP16, NHWC, ResNet-50         1.02 x eager, 0.95 x max-autotune
//   GPU, FP16 over TF32, ResNet-50     2.28 as published tables compare, 1.80 fair
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "format.h"
#include "table.h"

namespace holdfast::bench {

constexpr double kTableStyleGoal = 2.28;
constexpr double kFairGoal = 1.8;

// Required speed as a multiple of that peer's; nullopt: no goal.
inline std::optional<double> goal_of(const Cell& cell, const std::string& peer, bool gpu) {
  const bool judged = gpu ? cell.precision == "fp16" && cell.layout != "nchw"
                          : cell.precision == "fp32" && cell.mode == "eager";
  if (!judged) return std::nullopt;
  const bool resnet50 = gpu && cell.model == "resnet50";
  if (peer == "eager") return resnet50 ? 1.02 : 1.0;
  return resnet50 && peer == "max-autotune" ? std::optional(0.95) : std::nullopt;
}

// "goal >= 1.00: missed by 0.07"
inline std::string verdict(double value, double goal) {
  const std::string words = formatted("goal >= %.2f: ", goal);
  if (!std::isfinite(value)) return words + "not measured";
  if (value >= goal) return words + "met";
  const double by = goal - value;
  return words + "missed by " + formatted(by < 0.005 ? "%.1g" : "%.2f", by);  // never "by 0.00"
}

// The goals that could not be measured without a GPU, or without peers on one; empty: none.
inline std::string goals_left_open(const std::vector<Row>& rows, bool gpu) {
  const auto compared = [](const Row& row) { return !row.peers.empty(); };
  if (rows.empty() || (gpu && std::any_of(rows.begin(), rows.end(), compared))) return "";
  const std::string of_numbers = formatted(
      "FP16/TF32 of ResNet-50 >= %.2f as tables compare and >= %.2f fair; ", kTableStyleGoal, kFairGoal);
  return (gpu ? "goals not measured: no --peers eager,max-autotune here: "
              : "goals not measured: no GPU here: " + of_numbers) +
         "FP16 NHWC of ResNet-50 >= 1.02 x Python eager and >= 0.95 x torch.compile max-autotune, of other "
         "CNNs and of BERT >= 1.00 x Python eager\n";
}

}  // namespace holdfast::bench
