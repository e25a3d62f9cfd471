// What the ranks of these tests train, and on what.
#pragma once

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <cstdint>

namespace holdfast::test {

inline constexpr std::int64_t kGlobalBatch = 12;
inline constexpr std::int64_t kInputs = 24;

struct Net : torch::nn::Module {
  // `floats` more of them in the state.
  explicit Net(std::int64_t floats = 0) {
    first = register_module("first", torch::nn::Linear(kInputs, 32));
    drop = register_module("drop", torch::nn::Dropout(0.25));
    last = register_module("last", torch::nn::Linear(32, 4));
    if (floats > 0) register_buffer("more", torch::arange(floats, torch::kFloat));
  }
  torch::Tensor forward(const torch::Tensor& inputs) {
    return last->forward(drop->forward(torch::relu(first->forward(inputs))));
  }
  torch::nn::Linear first = nullptr;
  torch::nn::Dropout drop = nullptr;
  torch::nn::Linear last = nullptr;
};

// The same global batch whatever the number of ranks; each takes its part.
inline torch::Tensor inputs_of(std::int64_t step, int rank, int world_size) {
  const std::int64_t share = kGlobalBatch / world_size;
  return torch::arange(kGlobalBatch * kInputs, torch::kFloat)
      .add(static_cast<double>(step * 7))
      .sin()
      .reshape({kGlobalBatch, kInputs})
      .narrow(0, rank * share, share);
}

}  // namespace holdfast::test
