// Writes tensors of a checkpoint as a plain HDF5 file without a user block, for tools that search the
// signature at the file's start alone. It is no checkpoint: it has no index and no digests.
//
// Every byte is verified against the checkpoint's digests on the way. Memory stays at 16 MiB, and 10 KiB a
// tensor while libhdf5 lays the file out.
// Errors: damage of the checkpoint is a value, and `to` is then invalid; RefusedError and IoError as in
// file_plan.h. Threads: one. Durability: none; the caller syncs `to`.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "holdfast/format/safetensors_export.h"

namespace holdfast { inline namespace v0_2 {

// Requires that `to` is new and empty. Keys become "<group>/<key>"; without a group they are full names.
// `as`: converts floats to this type; only bfloat16.
std::optional<Rejection> export_hdf5(const File& from, const CheckpointIndex& index,
                                     const std::vector<ExportedTensor>& tensors, std::string_view group,
                                     File& to, ReadMode mode = ReadMode::cached,
                                     std::optional<DType> as = {});

}}  // namespace holdfast::v0_2
