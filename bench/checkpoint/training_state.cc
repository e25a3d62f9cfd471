#include "training_state.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/optim/channels_last.h"
#include "holdfast/optim/fused_sgd.h"
#include "holdfast/precision/autocast.h"
#include "statistics.h"

namespace holdfast::bench {

StateSpec state_named(const std::string& name) {
  if (name == "resnet50") return {name, 1, 64};
  if (name == "2gb") return {name, 11, 64};
  if (name == "tiny") return {name, 1, 8};
  throw UsageError("there is no state '" + name + "'; there are resnet50, 2gb and tiny (--states)");
}

TrainingState::TrainingState(const StateSpec& spec, const Workload& workload) : workload_(workload) {
  torch::manual_seed(1);
  for (int i = 0; i < spec.copies; ++i) {
    Copy& copy = copies_.emplace_back();
    copy.net = ResNet(ResNetOptions{
        .depth = 50, .num_classes = 10, .stem = Stem::imagenet, .width = spec.width, .initialize = true});
    copy.net->to(workload.device);
    if (workload.half) to_channels_last(*copy.net);
    const auto options = torch::optim::SGDOptions(0.01).momentum(0.9).weight_decay(5e-4);
    if (workload.device.is_cuda()) {
      copy.optimizer = std::make_unique<FusedSgd>(copy.net->parameters(), options);
    } else {
      copy.optimizer = std::make_unique<torch::optim::SGD>(copy.net->parameters(), options);
    }
    for (at::Tensor& parameter : copy.net->parameters()) {
      parameter.mutable_grad() = torch::randn_like(parameter).mul_(1e-3);
    }
    copy.optimizer->step();  // the momentum comes with it
    copy.optimizer->zero_grad();
  }
  for (int i = 0; i < spec.copies; ++i) {
    Copy& copy = copies_[static_cast<std::size_t>(i)];
    const std::string number = std::to_string(i);
    state_.add("model" + number, *copy.net);
    state_.add("optimizer" + number, *copy.optimizer);
    for (const auto& item : copy.net->named_parameters()) {
      tensors_.emplace_back("model" + number + "/" + item.key(), item.value().detach());
      const auto& slots = copy.optimizer->state().at(item.value().unsafeGetTensorImpl());
      tensors_.emplace_back("optimizer" + number + "/momentum_buffer/" + item.key(),
                            static_cast<const torch::optim::SGDParamState&>(*slots).momentum_buffer());
    }
    for (const auto& item : copy.net->named_buffers()) {
      tensors_.emplace_back("model" + number + "/" + item.key(), item.value());
    }
  }
  for (const auto& [name, tensor] : tensors_) bytes_ += tensor.nbytes();
  images_ = torch::rand({workload.batch, 3, workload.pixels, workload.pixels}).to(workload.device);
  if (workload.half) images_ = images_.contiguous(at::MemoryFormat::ChannelsLast);
  labels_ = torch::randint(10, {workload.batch}, torch::kLong).to(workload.device);
}

std::string TrainingState::words() const {
  return megabytes(static_cast<double>(bytes_)) + ", " + std::to_string(tensors_.size()) + " tensors";
}

double TrainingState::copy_once(std::byte* to) const {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& [name, tensor] : tensors_) {
    std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += tensor.nbytes();
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void TrainingState::forward_backward() {
  copies_.front().optimizer->zero_grad();
  at::Tensor loss;
  {
    const AutocastGuard autocast(workload_.half ? Precision::fp16 : Precision::fp32, workload_.device.type());
    loss = torch::nn::functional::cross_entropy(copies_.front().net->forward(images_), labels_);
  }
  loss.backward();
  if (workload_.device.is_cpu()) return;
  c10::Event passed(workload_.device.type());
  passed.record(c10::impl::VirtualGuardImpl(workload_.device.type()).getStream(workload_.device));
  if (last_pass_) last_pass_->synchronize();
  last_pass_ = std::move(passed);
}

void TrainingState::wait_for_device() const {
  if (workload_.device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl device(workload_.device.type());
  device.synchronizeStream(device.getStream(workload_.device));
}

void TrainingState::update() { copies_.front().optimizer->step(); }

void TrainingState::drop_gradients() {
  for (Copy& copy : copies_) copy.optimizer->zero_grad();
}

}  // namespace holdfast::bench
