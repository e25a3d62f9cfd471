// The oracle's recipe: parameters and inputs from a hash, the same in every language, so that no test needs a
// download. The numbers that the originals gave with it stand in the tests of the models.
//
//   oracle_fill(*net);                                             // every parameter; buffers stay
//   const at::Tensor pictures = oracle_pictures(2, 64);            // [2, 3, 64, 64], in [-1, 1)
//   expect_close(loss.item<double>(), 11.3856656, "loss");
//
// All values are rounded to float32 before they are stored as float64: a net in either precision gets the
// same. Threads: any.
#pragma once

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

namespace holdfast::test {

inline std::uint32_t oracle_hash(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ x >> 16;
}

// Number i of a stream, before it becomes a number in [-1, 1). Token ids are this modulo the vocabulary.
inline std::uint32_t oracle_bits(std::uint32_t stream, std::int64_t i) {
  return oracle_hash(static_cast<std::uint32_t>(i) + 0x9E3779B9u * (stream + 1));
}
inline double oracle_uniform(std::uint32_t stream, std::int64_t i) {
  return (oracle_bits(stream, i) >> 8) * 0x1p-23 - 1.0;
}

inline at::Tensor oracle_filled(at::IntArrayRef sizes, std::uint32_t stream, double factor = 1,
                                double offset = 0) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  auto* to = tensor.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    to[i] = static_cast<float>(offset + factor * oracle_uniform(stream, i));
  }
  return tensor;
}

inline at::Tensor oracle_pictures(std::int64_t count, std::int64_t pixels) {
  return oracle_filled({count, 3, pixels, pixels}, 1'000'002);
}

// Half the width of a matrix's or a convolution's values.
inline double oracle_fan_in_factor(const at::Tensor& value) {
  return std::sqrt(6.0 / static_cast<double>(value.numel() / value.size(0)));
}

// Parameter k in order of registration takes stream k; weights of one dimension lie around 1, biases around
// 0.
inline void oracle_fill(torch::nn::Module& net,
                        const std::function<double(const at::Tensor&)>& factor_of = oracle_fan_in_factor) {
  const at::NoGradGuard no_grad;
  std::uint32_t stream = 0;
  for (auto& item : net.named_parameters()) {
    at::Tensor& value = item.value();
    const bool around_one = value.dim() == 1 && item.key().ends_with("weight");
    const double factor = value.dim() >= 2 ? factor_of(value) : 0.1;
    value.copy_(oracle_filled(value.sizes(), stream++, factor, around_one ? 1.0 : 0.0));
  }
}

inline void expect_close(double value, double oracle, const std::string& what, double tolerance = 1e-8) {
  EXPECT_NEAR(value / oracle, 1.0, tolerance) << what << ": " << value;
}

// Proves the order of the fill.
inline void expect_parameters(const torch::nn::Module& net, double oracle, double oracle_absolute) {
  double sum = 0;
  double absolute = 0;
  for (const at::Tensor& parameter : net.parameters()) {
    sum += parameter.detach().sum().item<double>();
    absolute += parameter.detach().abs().sum().item<double>();
  }
  expect_close(sum, oracle, "sum of the parameters");
  expect_close(absolute, oracle_absolute, "absolute sum of the parameters");
}

// Of all parameters together.
inline double gradient_norm(const torch::nn::Module& net) {
  double squares = 0;
  for (const at::Tensor& parameter : net.parameters()) {
    if (parameter.grad().defined()) squares += parameter.grad().square().sum().item<double>();
  }
  return std::sqrt(squares);
}

// Proves momentum and the unbiased variance.
inline void expect_statistics(const torch::nn::Module& net, double oracle_mean, double oracle_variance) {
  double mean = 0;
  double variance = 0;
  for (const auto& item : net.named_buffers()) {
    if (item.key().ends_with("running_mean")) mean += item.value().sum().item<double>();
    if (item.key().ends_with("running_var")) variance += item.value().sum().item<double>();
  }
  expect_close(mean, oracle_mean, "running means");
  expect_close(variance, oracle_variance, "running variances");
}

}  // namespace holdfast::test
