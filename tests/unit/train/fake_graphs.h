// A device that captures graphs, without a device: the host's part of captured work runs once, its effects on
// memory and generator are undone; a replay does the work again and writes what it computed to where the
// capture found or made it. As on a device, a replay touches neither the handles that the program holds nor
// the version counters of their tensors.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/train/device_graph.h"

namespace holdfast::test {

class FakeGraphs final : public GraphDevice {
 public:
  explicit FakeGraphs(torch::nn::Module& model) : model_(&model) {}

  void aside(const std::function<void()>& work) override {
    ++asides;
    work();
  }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work, const DeviceGraph* with) override {
    ++captures;
    shared += with != nullptr ? 1 : 0;
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> before = gradients();
    std::vector<std::pair<at::Tensor, at::Tensor>> memory;
    const auto keep = [&](const at::Tensor& tensor) {
      if (tensor.defined()) memory.emplace_back(tensor, tensor.detach().clone());
    };
    for (const at::Tensor& parameter : model_->parameters()) keep(parameter.detach());
    for (const at::Tensor& buffer : model_->buffers()) keep(buffer);
    for (const at::Tensor& gradient : before) keep(gradient);
    const at::Tensor drawn = draws().get_state();
    {
      const at::AutoGradMode grad(true);
      work();
    }
    for (auto& [tensor, bytes] : memory) tensor.copy_(bytes);
    draws().set_state(drawn);
    const std::vector<at::Tensor> after = gradients();
    for (std::size_t i = 0; i < after.size(); ++i) {
      if (after[i].defined() && !after[i].is_same(before[i])) {
        after[i].fill_(std::numeric_limits<float>::quiet_NaN());  // nothing was computed
      }
    }
    if (captures == fails_at) throw Error("operation not permitted when stream is capturing\nand a trace");
    return std::make_unique<Graph>(*this, work, before, after);
  }

  int asides = 0, captures = 0, shared = 0, replays = 0;
  int fails_at = 0;  // the number of the capture that fails, counted from 1; 0: none

 private:
  class Graph final : public DeviceGraph {
   public:
    Graph(FakeGraphs& device, std::function<void()> work, std::vector<at::Tensor> before,
          std::vector<at::Tensor> after)
        : device_(&device), work_(std::move(work)), before_(std::move(before)), after_(std::move(after)) {}
    void replay() override {
      ++device_->replays;
      const std::vector<at::Tensor> handles = device_->gradients();
      std::vector<at::Tensor> before;
      for (const at::Tensor& gradient : before_)
        before.push_back(gradient.defined() ? gradient.data() : gradient);
      device_->set_gradients(before);
      work_();
      const std::vector<at::Tensor> computed = device_->gradients();
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < computed.size(); ++i) {
        if (after_[i].defined() && !after_[i].is_same(computed[i])) after_[i].data().copy_(computed[i]);
      }
      device_->set_gradients(handles);
    }

   private:
    FakeGraphs* device_;
    std::function<void()> work_;
    std::vector<at::Tensor> before_, after_;
  };

  static at::Generator draws() { return at::detail::getDefaultCPUGenerator(); }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& parameter : model_->parameters()) all.push_back(parameter.grad());
    return all;
  }
  void set_gradients(const std::vector<at::Tensor>& all) {
    std::size_t next = 0;
    for (const at::Tensor& parameter : model_->parameters()) parameter.mutable_grad() = all[next++];
  }

  torch::nn::Module* model_;
};

}  // namespace holdfast::test
