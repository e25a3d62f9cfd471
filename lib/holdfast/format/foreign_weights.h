// Files of weights that other programs wrote, told apart by their first bytes: safetensors (safetensors.h)
// and PyTorch archives (torch_archive.h).
//
// Errors: a malformed file is a value (Rejection); an error of the operating system is an IoError.
// Threads: free functions; read_foreign starts its own threads and joins them.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/safetensors.h"
#include "holdfast/format/torch_archive.h"

namespace holdfast { inline namespace v0_2 {

using ForeignIndex = std::variant<SafetensorsIndex, TorchIndex>;

bool looks_foreign(const File& file);
std::string_view format_name(const ForeignIndex& index);  // "safetensors", "PyTorch"

// `key`: as in read_torch_index; a safetensors file has none.
std::variant<ForeignIndex, Rejection> read_foreign_index(const File& file, std::string_view key = {});

// Reads the tensors whose key `wanted` accepts (an empty function: all), each as "<group>/<key>".
std::variant<std::shared_ptr<Snapshot>, Rejection> read_foreign(
    const File& file, const ForeignIndex& index, std::string_view group = "model", int threads = 2,
    const std::function<bool(const TensorSpec&)>& wanted = {});

}}  // namespace holdfast::v0_2
