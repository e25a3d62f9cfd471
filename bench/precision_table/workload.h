// What a row trains, whatever it is: a module, a loss on inputs that are made on the device, and what one
// sample costs. Pictures, detectors and language models are rows alike behind it.
//
//   Workload work = make_workload({.model = "bert-128", .device = device});
//   Inputs inputs = work.draw(64);
//   work.loss(inputs).backward();
//
// Errors: UsageError for what cannot be made: another model, pictures that are too small. Threads: as
// torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Input {
  std::string name;  // as the peers know it: "pictures", "labels", "input_ids"
  at::Tensor value;
};
using Inputs = std::vector<Input>;

struct Workload {
  std::shared_ptr<torch::nn::Module> module;       // on the CPU until somebody moves it
  std::function<Inputs(std::int64_t batch)> draw;  // from the device's default generator, on the device
  // Forward and loss, under the caller's autocast. Of pictures any layout.
  std::function<at::Tensor(const Inputs& inputs)> loss;
  std::int64_t size = 0;  // the pictures' side, or the sequences' length
  double train_flops = std::numeric_limits<double>::quiet_NaN();  // of one sample
  std::string bn = {};    // who computes the batch norms; empty: there are none
  std::string note = {};  // how it differs from what its name says
};

struct WorkloadOptions {
  std::string model;                    // of catalogue.h
  std::string variant = "torchvision";  // or "table"
  std::string bn = "aten";
  std::int64_t pixels = 0;  // 0: what the model is made for
  bool dropout = true;      // as the model has it; false: none, for comparisons
  // What the published harness of SSD draws anew for each step stays as draw() made it, for comparisons.
  bool fixed = false;
  bool tiny = false;  // of BERT: 2 layers of 64, to see that things work
  c10::Device device = c10::Device(c10::kCPU);
};

Workload make_workload(const WorkloadOptions& options);

}  // namespace holdfast::bench
