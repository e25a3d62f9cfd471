#include "holdfast/distributed/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/conv.h>

#include <algorithm>

#include "dist/shard_program/digests.h"
#include "dist/shard_program/scenarios.h"
#include "holdfast/distributed/data_parallel.h"
#include "support/operator_counts.h"

namespace holdfast::test {
namespace {

constexpr std::int64_t kWholeBatch = 7;

template <class Norm>
struct NormNet : torch::nn::Module {
  NormNet(at::ScalarType type, bool average) {
    torch::manual_seed(11);
    convolution = register_module("convolution", torch::nn::Conv2d(2, 5, 3));
    auto options = torch::nn::BatchNorm2dOptions(5);
    if (average) options.momentum(std::nullopt);
    norm = register_module("norm", Norm(options));
    const at::NoGradGuard no_grad;
    norm->weight.uniform_(0.5, 1.5);
    norm->bias.uniform_(-1, 1);
    to(type);
  }
  at::Tensor forward(const at::Tensor& x) { return norm(convolution(x * 3 + 20)).relu(); }

  torch::nn::Conv2d convolution{nullptr};
  Norm norm{nullptr};
};

at::Tensor draw(int seed, at::IntArrayRef shape, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(seed));
  return at::randn(shape, generator, at::TensorOptions(type));
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max().clamp_min(1)).item<double>();
}

// Shares of unequal sizes: 4 and 3, or 4, 3 and none.
std::pair<std::int64_t, std::int64_t> share_of(const ProcessGroup& group) {
  if (group.rank() == 0) return {0, 4};
  return group.rank() == 1 ? std::pair<std::int64_t, std::int64_t>{4, 7}
                           : std::pair<std::int64_t, std::int64_t>{7, 7};
}

std::string keys_of(const torch::nn::Module& module) {
  std::string keys;
  for (const auto& entry : module.named_parameters()) keys += entry.key() + " ";
  for (const auto& entry : module.named_buffers()) keys += entry.key() + " ";
  return keys;
}

// How far outputs, gradients, running statistics are from one process with the whole batch, three steps long.
std::string compare(ProcessGroup& group, at::ScalarType type, bool average) {
  NormNet<torch::nn::BatchNorm2d> whole(type, average);
  NormNet<SyncBatchNorm2d> ours(type, average);
  if (synchronize_batch_norms(ours, group) != 1) return "not found";
  DataParallel parallel(ours, group, {.broadcast_buffers = false});
  const auto [begin, end] = share_of(group);
  std::int64_t reads = 0;  // of values: on a device each would wait for it
  double of_outputs = 0, of_gradients = 0, of_inputs = 0, of_buffers = 0;
  for (int step = 0; step < 3; ++step) {
    at::Tensor x = draw(step, {kWholeBatch, 2, 6, 6}, type).requires_grad_();
    at::Tensor mine = x.detach().slice(0, begin, end).clone().requires_grad_();
    const at::Tensor target = draw(100 + step, {kWholeBatch, 5, 4, 4}, type);
    const at::Tensor expected = whole.forward(x);
    at::Tensor found;
    {
      const OperatorCounts counts;
      found = ours.forward(mine);
      if (end > begin) reads += counts.reads();
    }
    whole.zero_grad();
    ours.zero_grad();
    ((expected - target).square().sum() / kWholeBatch).backward();
    // The average over ranks of these is the loss above.
    const double share = static_cast<double>(group.world_size()) / kWholeBatch;
    parallel.backward((found - target.slice(0, begin, end)).square().sum() * share);
    if (end > begin) {
      of_outputs = std::max(of_outputs, apart(found, expected.slice(0, begin, end)));
      of_inputs = std::max(of_inputs, apart(mine.grad() / group.world_size(), x.grad().slice(0, begin, end)));
    }
    for (std::size_t i = 0; i < ours.parameters().size(); ++i) {
      of_gradients = std::max(of_gradients, apart(ours.parameters()[i].grad(), whole.parameters()[i].grad()));
    }
    for (std::size_t i = 0; i < ours.buffers().size(); ++i) {
      of_buffers = std::max(of_buffers, apart(ours.buffers()[i].to(type), whole.buffers()[i].to(type)));
    }
  }
  const double limit = type == at::kDouble ? 1e-12 : 2e-4;
  const auto word = [&](double found) {
    return found < limit ? std::string("close") : std::to_string(found);
  };
  std::string line =
      word(of_outputs) + " " + word(of_inputs) + " " + word(of_gradients) + " " + word(of_buffers);
  if (reads > 0) line += " reads";
  ours.eval();
  NormNet<torch::nn::BatchNorm2d> plain(type, average);
  for (std::size_t i = 0; i < ours.buffers().size(); ++i) {
    plain.buffers()[i].copy_(ours.buffers()[i]);
  }
  plain.eval();
  const at::Tensor x = draw(50 + group.rank(), {1 + group.rank(), 2, 6, 6}, type);
  line += ours.forward(x).equal(plain.forward(x)) ? " same" : " other";
  line += keys_of(ours) == keys_of(whole) ? " keys " : " other keys ";
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : ours.buffers()) buffers.push_back(buffer.to(type));
  return line + digest_of_tensors(buffers);
}

}  // namespace

// OUTPUTS INPUT-GRADIENTS GRADIENTS BUFFERS EVALUATION KEYS DIGEST-OF-BUFFERS
Lines normalizes(ProcessGroup& group) {
  return {compare(group, at::kDouble, false), compare(group, at::kFloat, false),
          compare(group, at::kDouble, true)};
}

}  // namespace holdfast::test
