// Weights as another program exports them: by key, in a safetensors file, which --init-from reads.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "holdfast/format/safetensors_writer.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/state/train_state.h"
#include "support/memory_file_system.h"

namespace holdfast::test {

using Weights = std::map<std::string, at::Tensor>;

// Shares the module's memory.
inline Weights state_dict_of(const torch::nn::Module& module) {
  Weights weights;
  for (const auto& item : module.named_parameters()) weights[item.key()] = item.value().detach();
  for (const auto& item : module.named_buffers()) weights[item.key()] = item.value();
  return weights;
}

inline void put_weights(File& file, const Weights& weights) {
  std::vector<TensorSpec> specs;
  for (const auto& [key, tensor] : weights) {
    specs.push_back(
        {key, tensor.scalar_type() == at::kLong ? DType::int64 : DType::float32, tensor.sizes().vec()});
  }
  SafetensorsWriter writer(file, specs, {});
  for (const std::size_t index : writer.order()) {
    const at::Tensor& tensor = weights.at(specs[index].name);
    const auto to = writer.next(tensor.nbytes());
    std::memcpy(to.data(), tensor.const_data_ptr(), to.size());
  }
  writer.finish();
}

inline void take_weights(torch::nn::Module& module, const Weights& weights) {
  MemoryFileSystem disk;
  put_weights(*disk.open_file("/weights", OpenMode::create), weights);
  TrainState state;
  state.add("model", module);
  state.describe();
  const auto read = read_weights(*disk.open_file("/weights", OpenMode::read), state.attributes());
  ASSERT_TRUE(std::holds_alternative<std::shared_ptr<Snapshot>>(read));
  state.load(*std::get<std::shared_ptr<Snapshot>>(read), {.weights_only = true});
}

}  // namespace holdfast::test
