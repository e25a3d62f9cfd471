#include "dist/rank_program/loops.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/logger.hpp>

#include "holdfast/distributed/internal/c10d_compat.h"

namespace holdfast::test {
namespace {

constexpr std::int64_t kBatch = 24;
constexpr std::int64_t kFirstBucket = 1 << 10;
constexpr std::int64_t kBucket = 8 << 10;

// This rank's share of the micro-batch's share of the step's batch.
at::Tensor share_of(const at::Tensor& batch, const ProcessGroup& group, const Setting& setting, int micro) {
  const std::int64_t of_micro = kBatch / setting.micro_batches;
  const std::int64_t of_rank = of_micro / group.world_size();
  const std::int64_t begin = micro * of_micro + group.rank() * of_rank;
  return batch.slice(0, begin, begin + of_rank);
}

at::Tensor loss_of(Net& net, const ProcessGroup& group, const Setting& setting, int step, int micro) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1000 + step));
  const at::Tensor inputs = at::randn({kBatch, 32}, generator, at::TensorOptions(setting.type));
  const at::Tensor targets = at::randn({kBatch, 5}, generator, at::TensorOptions(setting.type));
  const at::Tensor out =
      net.forward(share_of(inputs, group, setting, micro), setting.unused && step % 2 == 1);
  return (out - share_of(targets, group, setting, micro)).square().mean() / setting.micro_batches;
}

void update(Net& net) {
  const c10::NoGradGuard no_grad;
  for (at::Tensor& parameter : net.parameters()) {
    if (!parameter.grad().defined()) continue;
    parameter.sub_(parameter.grad(), 0.05);
    parameter.mutable_grad().reset();
  }
}

}  // namespace

Net::Net(const Setting& setting, int seed) : last(nullptr), first(nullptr), middle(nullptr) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  middle = register_module("middle", torch::nn::Linear(setting.hidden, setting.hidden));
  last = register_module("last", torch::nn::Linear(setting.hidden, 5));
  first = register_module("first", torch::nn::Linear(32, setting.hidden));
  if (setting.buffers) normal = register_module("normal", torch::nn::BatchNorm1d(setting.hidden));
  to(setting.type);
}

at::Tensor Net::forward(at::Tensor x, bool skip) {
  x = first->forward(x);
  if (normal) x = normal->forward(x);
  x = x.relu();
  if (!skip) x = middle->forward(x).relu();
  return last->forward(x);
}

DataParallelOptions options_of(const Setting& setting) {
  return {.find_unused = setting.unused,
          .compression = setting.compression,
          .first_bucket_bytes = kFirstBucket,
          .bucket_bytes = kBucket};
}

void train_step(Net& net, DataParallel& parallel, const ProcessGroup& group, const Setting& setting,
                int step) {
  for (int micro = 0; micro < setting.micro_batches; ++micro) {
    parallel.before_forward();
    parallel.backward(loss_of(net, group, setting, step, micro),
                      micro + 1 < setting.micro_batches ? Gradients::accumulate : Gradients::reduce);
  }
  update(net);
}

// As torch.nn.parallel.DistributedDataParallel calls it.
void train_plainly(Net& net, const ProcessGroup& group, const Setting& setting) {
  std::vector<at::Tensor> parameters = net.parameters();
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : net.buffers()) buffers.push_back(buffer);
  std::vector<at::Tensor> all;
  for (const at::Tensor& tensor : parameters) all.push_back(tensor.detach());
  all.insert(all.end(), buffers.begin(), buffers.end());
  c10d::broadcast_coalesced(group.c10d(), all, 250 << 20, 0);
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, {kFirstBucket, kBucket}, std::vector<bool>(parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  const auto reducer = compat::make_reducer({.parameters = parameters,
                                             .buckets = buckets,
                                             .group = group.c10d(),
                                             .bucket_bytes = kBucket,
                                             .find_unused = setting.unused,
                                             .names = {},
                                             .first_bucket_bytes = kFirstBucket});
  const auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log("Net", {}, -1, true, false, false);
  if (setting.compression == GradientCompression::fp16) {
    reducer->register_builtin_comm_hook(c10d::BuiltinCommHookType::FP16_COMPRESS);
  }
  bool buffers_due = true;
  for (int step = 0; step < setting.steps; ++step) {
    for (int micro = 0; micro < setting.micro_batches; ++micro) {
      const bool reduces = micro + 1 == setting.micro_batches;
      if (reduces) reducer->prepare_for_forward();
      reducer->rebuild_buckets();
      if (buffers_due && !buffers.empty()) {
        const c10::NoGradGuard no_grad;
        c10d::broadcast_coalesced(group.c10d(), buffers, 250 << 20, 0);
      }
      const at::Tensor loss = loss_of(net, group, setting, step, micro);
      if (reduces) {
        reducer->prepare_for_backward(setting.unused ? std::vector<at::Tensor>{loss}
                                                     : std::vector<at::Tensor>{});
      }
      buffers_due = reduces;
      loss.backward();
    }
    update(net);
  }
}

std::string bytes_of(const Net& net, bool buffers) {
  std::string bytes;
  const auto take = [&](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.detach().contiguous();
    bytes.append(static_cast<const char*>(flat.const_data_ptr()), flat.nbytes());
  };
  for (const at::Tensor& parameter : net.parameters()) take(parameter);
  if (buffers) {
    for (const at::Tensor& buffer : net.buffers()) take(buffer);
  }
  return bytes;
}

}  // namespace holdfast::test
