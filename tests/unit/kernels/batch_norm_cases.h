// A fused batch norm against the same in float64 by Torch's operators, with gradients, on any device.
#pragma once

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <ostream>
#include <string>
#include <vector>

#include "holdfast/kernels/batch_norm.h"

namespace holdfast::test {

struct Shape {
  std::int64_t n, c, h, w;
};

struct NormCase {
  at::ScalarType type = at::kFloat;
  Shape shape = {4, 64, 7, 7};
  bool add = false;
  bool relu = false;
  bool training = true;
  bool main = true, shortcut = true;  // which paths lead on to the loss
  double mean = 0;                    // of x, whose deviation is near 2
};

inline std::string text_of(const NormCase& one) {
  const auto& [n, c, h, w] = one.shape;
  std::string text = c10::toString(one.type);
  for (const std::int64_t size : {n, c, h, w}) text += " " + std::to_string(size);
  return text + (one.add ? " add" : "") + (one.relu ? " relu" : "") + (one.training ? "" : " evaluation") +
         (one.main ? " main" : "") + (one.shortcut ? " shortcut" : "");
}

// Inputs and what came of them.
struct NormRun {
  at::Tensor x, z, weight, bias, mean, variance;  // before and after
  Activation y;
  at::Tensor gradient, gradient2;
};

inline at::Tensor leaf(const at::Tensor& tensor) { return tensor.detach().requires_grad_(); }

inline NormRun inputs_of(const NormCase& one, c10::Device device) {
  torch::manual_seed(1);
  const auto& [n, c, h, w] = one.shape;
  const auto made = [&](double deviation, double mean) {
    const at::Tensor drawn = at::randn({n, c, h, w}, at::kFloat) * deviation + mean;
    return drawn.to(device, one.type).contiguous(at::MemoryFormat::ChannelsLast);
  };
  NormRun run;
  run.x = leaf(made(2, one.mean));
  if (one.add) run.z = leaf(made(1, 0));
  run.gradient = made(1, 0);
  run.gradient2 = made(1, 0);
  run.weight = leaf((at::rand({c}) + 0.5).to(device));
  run.bias = leaf((at::randn({c}) * 0.2).to(device));
  run.mean = at::randn({c}).to(device);
  run.variance = (at::rand({c}) + 0.5).to(device);
  return run;
}

inline void forward_and_backward(NormRun& run, const NormCase& one) {
  run.y = fused_batch_norm(run.x,
                           {.weight = run.weight,
                            .bias = run.bias,
                            .running_mean = run.mean,
                            .running_var = run.variance,
                            .momentum = 0.3,
                            .eps = 1e-3,
                            .training = one.training},
                           {.add = one.add ? std::optional(run.z) : std::nullopt, .relu = one.relu});
  std::vector<at::Tensor> ends;
  std::vector<at::Tensor> gradients;
  if (one.main) {
    ends.push_back(run.y.main);
    gradients.push_back(run.gradient);
  }
  if (one.shortcut) {
    ends.push_back(run.y.shortcut);
    gradients.push_back(run.gradient2);
  }
  if (!ends.empty()) torch::autograd::backward(ends, gradients);
}

// By separate operators in float64. The sum of two gradients is rounded as the type would. Where y is 0 but for
// rounding, chance decides on which side of the ReLU it lies: gradients take the side of `y_of_run`.
inline NormRun exact(const NormRun& of, const NormCase& one, const at::Tensor& y_of_run) {
  const auto in_double = [](const at::Tensor& tensor) {
    return leaf(tensor.detach().to(at::kDouble).clone());
  };
  NormRun run;
  run.x = in_double(of.x);
  if (one.add) run.z = in_double(of.z);
  run.weight = in_double(of.weight);
  run.bias = in_double(of.bias);
  run.mean = in_double(of.mean).detach();
  run.variance = in_double(of.variance).detach();
  at::Tensor y =
      at::batch_norm(run.x, run.weight, run.bias, run.mean, run.variance, one.training, 0.3, 1e-3, false);
  if (one.add) y = y + run.z;
  run.y.main = one.relu ? at::relu(y) : y;
  if (one.relu) y = y * (y_of_run > 0).to(at::kDouble);
  at::Tensor gradient = one.main ? of.gradient : at::zeros_like(of.gradient);
  if (one.shortcut) gradient = gradient + of.gradient2;
  if (one.main || one.shortcut) y.backward(in_double(gradient).detach());
  return run;
}

inline double distance(const at::Tensor& value, const at::Tensor& exact) {
  const at::Tensor wide = exact.detach().to(at::kDouble);
  const at::Tensor difference = value.detach().to(at::kDouble) - wide;
  return (difference.norm() / wide.norm().clamp_min(1e-30)).item<double>();
}

inline double tolerance(at::ScalarType type) {
  return type == at::kFloat ? 2e-6 : type == at::kHalf ? 1.5e-3 : 1.2e-2;
}

inline void expect_exact_enough(const NormCase& one, c10::Device device) {
  SCOPED_TRACE(text_of(one));
  NormRun run = inputs_of(one, device);
  NormRun before = run;
  before.mean = run.mean.clone();
  before.variance = run.variance.clone();
  forward_and_backward(run, one);
  const NormRun right = exact(before, one, run.y.main.detach());
  const double most = tolerance(one.type);
  EXPECT_LE(distance(run.y.main, right.y.main), most);
  EXPECT_EQ(run.y.main.scalar_type(), one.type);
  EXPECT_TRUE(run.y.main.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_EQ(run.y.main.const_data_ptr(), run.y.shortcut.const_data_ptr());
  EXPECT_LE(distance(run.mean, right.mean), 2e-6);
  EXPECT_LE(distance(run.variance, right.variance), 2e-6);
  if (!one.main && !one.shortcut) return;
  EXPECT_LE(distance(run.x.grad(), right.x.grad()), most);
  EXPECT_TRUE(run.x.grad().is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LE(distance(run.weight.grad(), right.weight.grad()), most);
  EXPECT_LE(distance(run.bias.grad(), right.bias.grad()), most);
  if (one.add) {
    EXPECT_LE(distance(run.z.grad(), right.z.grad()), most);
  }
}

// Every type, with and without addition, ReLU, the batch's statistics and each of the two paths.
inline void expect_all_combinations(const Shape& shape, c10::Device device) {
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const bool add : {false, true}) {
      for (const bool relu : {false, true}) {
        for (const bool training : {false, true}) {
          for (const int paths : {1, 2, 3}) {
            if (!training && paths != 3) continue;
            expect_exact_enough({.type = type,
                                 .shape = shape,
                                 .add = add,
                                 .relu = relu,
                                 .training = training,
                                 .main = (paths & 1) != 0,
                                 .shortcut = (paths & 2) != 0},
                                device);
          }
        }
      }
    }
  }
}

// Nothing differs from one time to the next.
inline void expect_same_bits(const NormRun& one, const NormRun& other) {
  EXPECT_TRUE(one.y.main.equal(other.y.main));
  EXPECT_TRUE(one.mean.equal(other.mean));
  EXPECT_TRUE(one.variance.equal(other.variance));
  EXPECT_TRUE(one.x.grad().equal(other.x.grad()));
  EXPECT_TRUE(one.weight.grad().equal(other.weight.grad()));
  EXPECT_TRUE(one.bias.grad().equal(other.bias.grad()));
  if (one.z.defined()) {
    EXPECT_TRUE(one.z.grad().equal(other.z.grad()));
  }
}

}  // namespace holdfast::test
