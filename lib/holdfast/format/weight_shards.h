// Weights in several safetensors files with an index, as large models are exchanged:
// "model-00001-of-00003.safetensors" and "model.safetensors.index.json".
//
// Errors: none. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/format/safetensors_export.h"

namespace holdfast { inline namespace v0_2 {

struct WeightShards {
  std::vector<std::vector<ExportedTensor>> shards;  // in the order of the tensors
  std::uint64_t total = 0;                          // bytes of all tensors
};

// Fills one shard after another with at most `most` bytes of tensors. A tensor of more gets a shard of its
// own.
WeightShards split_weights(const CheckpointIndex& index, const std::vector<ExportedTensor>& tensors,
                           std::uint64_t most, std::optional<DType> as = {});
// "model-00002-of-00003.safetensors" for "model.safetensors"; `shard` counts from 0.
std::string shard_name(const std::string& name, std::size_t shard, std::size_t count);
// The two arguments of shard_name() that give this name; nullopt if it ends in none.
std::optional<std::pair<std::size_t, std::size_t>> shard_numbers(const std::string& name);
std::string index_name(const std::string& name);  // "model.safetensors.index.json"
// The index: {"metadata":{"total_size":…},"weight_map":{key: shard's name}}.
std::string shard_index(const WeightShards& split, const std::string& name);

}}  // namespace holdfast::v0_2
