#include "rank.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <vector>

#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/internal/c10d_compat.h"
#include "holdfast/optim/fused_sgd.h"

namespace holdfast::bench {
namespace {

enum Order : std::int64_t { stop, ours, plain };

constexpr std::int64_t kFirstBucket = 1 << 20;  // PyTorch's
constexpr std::int64_t kBucket = 25 << 20;
constexpr std::size_t kBroadcast = 250 << 20;

// A model with this rank's share of the batch.
class Side {
 public:
  Side(const JobOptions& options, const ProcessGroup& group)
      : training_(our_training(options, /*amp=*/false)),
        optimizer_(module().parameters(), torch::optim::SGDOptions(training_->options().optimizer.rate)
                                              .momentum(training_->options().optimizer.momentum)
                                              .weight_decay(training_->options().optimizer.weight_decay)) {
    const std::int64_t share = options.batch / group.world_size();
    for (const Input& input : training_->inputs()) {
      inputs_.push_back({input.name, input.value.narrow(0, group.rank() * share, share).contiguous()});
    }
    module().train();
  }
  virtual ~Side() = default;
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  virtual void pass() = 0;
  // The last one's loss.
  double steps(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      optimizer_.zero_grad();
      pass();
      optimizer_.step();
    }
    return loss_.item().toDouble();
  }

 protected:
  torch::nn::Module& module() { return *training_->work().module; }
  at::Tensor forward() {
    const at::Tensor loss = training_->work().loss(inputs_);
    loss_ = loss.detach();
    return loss;
  }

 private:
  std::unique_ptr<Training> training_;
  Inputs inputs_;
  FusedSgd optimizer_;
  at::Tensor loss_;
};

class Ours final : public Side {
 public:
  Ours(const JobOptions& options, ProcessGroup& group) : Side(options, group), parallel_(module(), group) {}
  void pass() override {
    parallel_.before_forward();
    parallel_.backward(forward());
  }

 private:
  DataParallel parallel_;
};

// The loop that a user of plain c10d writes, with the calls of torch.nn.parallel.DistributedDataParallel in
// its order.
class Plain final : public Side {
 public:
  Plain(const JobOptions& options, const ProcessGroup& group) : Side(options, group), group_(group.c10d()) {
    const std::vector<at::Tensor> parameters = module().parameters();
    for (const at::Tensor& buffer : module().buffers()) buffers_.push_back(buffer);
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : parameters) all.push_back(parameter.detach());
    all.insert(all.end(), buffers_.begin(), buffers_.end());
    c10d::broadcast_coalesced(group_, all, kBroadcast, 0);
    auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
        parameters, {kFirstBucket, kBucket}, std::vector<bool>(parameters.size(), false)));
    std::reverse(buckets.begin(), buckets.end());
    reducer_ = compat::make_reducer({.parameters = parameters,
                                     .buckets = std::move(buckets),
                                     .group = group_,
                                     .bucket_bytes = kBucket,
                                     .find_unused = false,
                                     .names = {},
                                     .first_bucket_bytes = kFirstBucket});
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
    logger_->set_construction_data_and_log("model", {}, -1, true, false, false);
  }
  void pass() override {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();
    if (!buffers_.empty()) {
      const at::NoGradGuard no_grad;
      c10d::broadcast_coalesced(group_, buffers_, kBroadcast, 0);
    }
    const at::Tensor loss = forward();
    reducer_->prepare_for_backward({});
    loss.backward();
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<at::Tensor> buffers_;
  std::shared_ptr<c10d::Reducer> reducer_;
  std::shared_ptr<c10d::Logger> logger_;
};

// What all ranks do next, and how often.
std::pair<std::int64_t, std::int64_t> next_order(const ProcessGroup& group) {
  std::vector<at::Tensor> order{at::zeros({2}, at::kLong)};
  auto* const words = order[0].mutable_data_ptr<std::int64_t>();
  std::string who;
  if (group.rank() == 0 && std::cin >> who >> words[1]) words[0] = who == "ours" ? ours : plain;
  group.c10d()->broadcast(order)->wait();
  return {words[0], words[1]};
}

}  // namespace

void serve_rank(const JobOptions& options) {
  GroupOptions patient;
  patient.timeout = std::chrono::hours(1);  // for the turns of others
  patient.device = options.device;
  const c10::OptionalDeviceGuard guard(options.device.is_cuda() ? std::optional(options.device)
                                                                : std::nullopt);
  ProcessGroup group(patient);
  Ours our(options, group);
  Plain their(options, group);
  if (group.rank() == 0) std::cout << R"({"ready": true})" << std::endl;
  while (true) {
    const auto [who, count] = next_order(group);
    if (who == stop) break;
    const auto begin = std::chrono::steady_clock::now();
    const double loss = (who == ours ? static_cast<Side&>(our) : their).steps(count);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    if (group.rank() != 0) continue;
    std::cout << nlohmann::json{{"seconds", taken.count()}, {"loss", loss}}.dump() << std::endl;
  }
  group.leave();
}

}  // namespace holdfast::bench
