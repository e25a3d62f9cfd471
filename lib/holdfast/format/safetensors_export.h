// Copies tensors of a checkpoint into a safetensors file, piece by piece: every byte is checked against the
// checkpoint's digests while it passes, and memory stays at 16 MiB whatever the tensors' size.
//
// Errors: damage of the checkpoint is a value, and then `to` holds rubbish; RefusedError and IoError as in
// safetensors_writer.h. Threads: one. Durability: none; the caller syncs `to`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast::inline v1 {

struct ExportedTensor {
  std::string key;         // in the new file
  std::size_t tensor = 0;  // which one of the index; two keys may share one, and each gets its bytes
};

// `to` is new and empty.
std::optional<Rejection> export_safetensors(const File& from, const CheckpointIndex& index,
                                            const std::vector<ExportedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata, File& to,
                                            ReadMode mode = ReadMode::cached);

}  // namespace holdfast::inline v1
