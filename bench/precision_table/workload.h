// The training of a row: a module, a loss on inputs that are made on the device, and the cost of one sample.
// It hides the difference between pictures, detectors and language models.
//
//   Workload work = make_workload({.model = "bert-128", .device = device});
//   Inputs inputs = work.draw(64);
//   work.loss(inputs).backward();
//
// Errors: UsageError for an unknown model or for pictures that are too small. Threads: as torch::nn::Module.
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
  std::string name;  // the peers' name of it: "pictures", "labels", "input_ids"
  at::Tensor value;
};
using Inputs = std::vector<Input>;

struct Workload {
  std::shared_ptr<torch::nn::Module> module;       // on the CPU until the caller moves it
  std::function<Inputs(std::int64_t batch)> draw;  // on the device, from its default generator
  // Forward and loss, under the caller's autocast. Accepts pictures in any layout.
  std::function<at::Tensor(const Inputs& inputs)> loss;
  std::int64_t size = 0;  // side of the pictures, or length of the sequences
  double train_flops = std::numeric_limits<double>::quiet_NaN();  // of one sample
  std::string bn = {};    // implementation of the batch norms; empty: none
  std::string note = {};  // how it differs from what its name suggests
};

struct WorkloadOptions {
  std::string model;                    // of catalogue.h
  std::string variant = "torchvision";  // or "table"
  std::string bn = "aten";
  std::int64_t pixels = 0;  // 0: the model's default
  bool dropout = true;      // true: the model's; false: none, for comparisons
  // True: what SSD's published harness draws for each step stays as draw() made it, for comparisons.
  bool fixed = false;
  bool tiny = false;  // for BERT: 2 layers of 64, for tests
  c10::Device device = c10::Device(c10::kCPU);
};

Workload make_workload(const WorkloadOptions& options);

}  // namespace holdfast::bench
