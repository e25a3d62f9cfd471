#include "dist/shard_program/as_python.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "dist/shard_program/digests.h"
#include "dist/shard_program/recorded_data_parallel.h"
#include "holdfast/distributed/data_parallel.h"

namespace holdfast::test {
namespace {

constexpr int kSteps = 100;
constexpr int kMicro = 2;
constexpr std::int64_t kBatch = 24;

struct PythonNet : torch::nn::Module {
  PythonNet() {
    first = register_module("0", torch::nn::Linear(8, 12));
    normal = register_module("1", torch::nn::BatchNorm1d(12));
    middle = register_module("3", torch::nn::Linear(12, 12));
    last = register_module("5", torch::nn::Linear(12, 3));
    to(at::kDouble);
  }
  // `other`: what a rank that is not 0 begins with, and DataParallel mends.
  void fill(int other) {
    const at::NoGradGuard no_grad;
    std::int64_t p = 0;
    for (at::Tensor& parameter : parameters()) {
      auto* const values = parameter.mutable_data_ptr<double>();
      for (std::int64_t i = 0; i < parameter.numel(); ++i) {
        values[i] = static_cast<double>((i * 7 + p * 13) % 23 - 11) / 40 + other;
      }
      ++p;
    }
  }
  at::Tensor forward(const at::Tensor& x) { return last(middle(normal(first(x)).relu()).relu()); }
  torch::nn::Linear first{nullptr}, middle{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d normal{nullptr};
};

template <class Value>
at::Tensor table(std::int64_t columns, const Value& value) {
  at::Tensor made = at::empty({kBatch, columns}, at::kDouble);
  auto access = made.accessor<double, 2>();
  for (std::int64_t n = 0; n < kBatch; ++n) {
    for (std::int64_t f = 0; f < columns; ++f) access[n][f] = value(n, f);
  }
  return made;
}

at::Tensor inputs_of(std::int64_t step) {
  return table(8, [&](std::int64_t n, std::int64_t f) {
    return static_cast<double>((step * 31 + n * 17 + f * 5 + n * f % 7) % 19 - 9) / 6;
  });
}

at::Tensor targets_of(std::int64_t step) {
  return table(3, [&](std::int64_t n, std::int64_t f) {
    return static_cast<double>((step * 11 + n * 3 + f * 7) % 13 - 6) / 5;
  });
}

}  // namespace

std::string train_as_python(ProcessGroup& group) {
  PythonNet net;
  net.fill(group.rank());
  DataParallel parallel(net, group);
  torch::optim::SGD optimizer(net.parameters(),
                              torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
  const std::int64_t of_rank = kBatch / kMicro / group.world_size();
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    for (int micro = 0; micro < kMicro; ++micro) {
      const std::int64_t begin = micro * (kBatch / kMicro) + group.rank() * of_rank;
      parallel.before_forward();
      const at::Tensor out = net.forward(inputs_of(step).narrow(0, begin, of_rank));
      const at::Tensor loss = (out - targets_of(step).narrow(0, begin, of_rank)).square().mean() / kMicro;
      parallel.backward(loss, micro + 1 < kMicro ? Gradients::accumulate : Gradients::reduce);
    }
    optimizer.step();
  }
  const at::Tensor all = flat_of(net.parameters());
  if (all.numel() != static_cast<std::int64_t>(std::size(kRecordedByPython))) return "another size";
  double worst = 0;
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    worst = std::max(worst, std::abs(all[i].item<double>() - kRecordedByPython[i]));
  }
  return "worst " + std::to_string(worst) + " " + digest_of_tensors(net.parameters());
}

}  // namespace holdfast::test
