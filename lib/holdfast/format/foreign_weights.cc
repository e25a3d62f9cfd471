#include "holdfast/format/foreign_weights.h"

#include <algorithm>

#include "holdfast/format/internal/segments.h"

namespace holdfast { inline namespace v0_2 {

bool looks_foreign(const File& file) { return looks_like_safetensors(file) || looks_like_torch(file); }

std::string_view format_name(const ForeignIndex& index) {
  return std::holds_alternative<TorchIndex>(index) ? "PyTorch" : "safetensors";
}

std::variant<ForeignIndex, Rejection> read_foreign_index(const File& file, std::string_view key) {
  // PyTorch first: its archives begin with a fixed signature. A length and a brace, which mark safetensors,
  // are weaker evidence.
  if (looks_like_torch(file)) {
    auto index = read_torch_index(file, key);
    if (auto* const rejection = std::get_if<Rejection>(&index)) return std::move(*rejection);
    return ForeignIndex(std::move(std::get<TorchIndex>(index)));
  }
  if (!key.empty()) return internal::damaged("only files of PyTorch have keys");
  auto index = read_safetensors_index(file);
  if (auto* const rejection = std::get_if<Rejection>(&index)) return std::move(*rejection);
  return ForeignIndex(std::move(std::get<SafetensorsIndex>(index)));
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_foreign(
    const File& file, const ForeignIndex& index, std::string_view group, int threads,
    const std::function<bool(const TensorSpec&)>& wanted) {
  // A copy of the index, which has names and places but no tensor's bytes.
  ForeignIndex some = index;
  if (wanted) {
    std::visit(
        [&](auto& known) {
          std::erase_if(known.tensors, [&](const auto& tensor) { return !wanted(tensor.spec); });
        },
        some);
  }
  if (const auto* const torch = std::get_if<TorchIndex>(&some))
    return read_torch(file, *torch, group, threads);
  return read_safetensors(file, std::get<SafetensorsIndex>(some), group, threads);
}

}}  // namespace holdfast::v0_2
