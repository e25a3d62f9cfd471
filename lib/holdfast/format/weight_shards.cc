#include "holdfast/format/weight_shards.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

#include "holdfast/format/internal/tensor_copy.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::string_view kExtension = ".safetensors";
// The names of Hugging Face: model-00001-of-00003.safetensors.
constexpr std::size_t kDigits = 5;

std::string padded(std::size_t number) {
  const std::string digits = std::to_string(number);
  return std::string(digits.size() < kDigits ? kDigits - digits.size() : 0, '0') + digits;
}

}  // namespace

WeightShards split_weights(const CheckpointIndex& index, const std::vector<ExportedTensor>& tensors,
                           std::uint64_t most, std::optional<DType> as) {
  WeightShards split;
  std::uint64_t filled = 0;
  for (const ExportedTensor& tensor : tensors) {
    TensorSpec spec = index.tensors.at(tensor.tensor).spec;
    spec.dtype = internal::exported_dtype(spec.dtype, as);
    const std::uint64_t bytes = spec.bytes();
    // A tensor that is larger than the limit gets a shard of its own.
    // Compared by subtraction, because a sum of sizes could overflow.
    if (split.shards.empty() || (filled != 0 && bytes > most - std::min(filled, most))) {
      split.shards.emplace_back();
      filled = 0;
    }
    split.shards.back().push_back(tensor);
    filled += bytes;
    split.total += bytes;
  }
  return split;
}

std::string shard_name(const std::string& name, std::size_t shard, std::size_t count) {
  const bool ends = name.ends_with(kExtension);
  const std::string stem = ends ? name.substr(0, name.size() - kExtension.size()) : name;
  return stem + "-" + padded(shard + 1) + "-of-" + padded(count) + std::string(kExtension);
}

std::optional<std::pair<std::size_t, std::size_t>> shard_numbers(const std::string& name) {
  // As shard_name() writes it, so a directory or a sign is no part of a number.
  static const std::regex ending("-([0-9]{5,9})-of-([0-9]{5,9})\\.safetensors$");
  std::smatch found;
  // A longer one is no name of a file, and std::regex recurses over it.
  if (name.size() > 255 || !std::regex_search(name, found, ending)) return std::nullopt;
  const auto shard = std::stoul(found[1].str());
  return shard == 0 ? std::nullopt : std::optional(std::pair(shard - 1, std::stoul(found[2].str())));
}

std::string index_name(const std::string& name) { return name + ".index.json"; }

std::string shard_index(const WeightShards& split, const std::string& name) {
  nlohmann::ordered_json document;
  document["metadata"]["total_size"] = split.total;
  auto& map = document["weight_map"] = nlohmann::json::object();
  for (std::size_t i = 0; i < split.shards.size(); ++i) {
    for (const ExportedTensor& tensor : split.shards[i]) {
      map[tensor.key] = shard_name(name, i, split.shards.size());
    }
  }
  return document.dump(2) + "\n";
}

}}  // namespace holdfast::v0_2
