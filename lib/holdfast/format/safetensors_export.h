// Copies tensors of a checkpoint into a safetensors file, piece by piece. Every byte is verified against the
// checkpoint's digests on the way. Memory stays at 16 MiB for any size.
//
// Errors: damage of the checkpoint is a value, and `to` is then invalid; RefusedError and IoError as in
// safetensors_writer.h. Threads: one. Durability: none; the caller syncs `to`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 {

struct ExportedTensor {
  std::string key;         // name in the new file
  std::size_t tensor = 0;  // index of the tensor; two keys may share one, and each gets its bytes
};

// Requires that `to` is new and empty. `as`: replaces floating-point types; bfloat16 or none.
HOLDFAST_EXPORT std::optional<Rejection> export_safetensors(
    const File& from, const CheckpointIndex& index, const std::vector<ExportedTensor>& tensors,
    const std::map<std::string, std::string>& metadata, File& to, ReadMode mode = ReadMode::cached,
    std::optional<DType> as = {});

}}  // namespace holdfast::v0_2
