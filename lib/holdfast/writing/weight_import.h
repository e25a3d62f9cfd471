// Commits what another program wrote as an ordinary checkpoint, by the store's rules: the first one of a run
// directory that holds nothing else. Weights alone are at step 0: runs take them from it
// (StartOptions::init_from), and none resumes from it, because it has no optimizer and no position. From a
// whole state its program resumes.
//
// Errors: UsageError for a directory that is not empty; RefusedError for tensors that cannot be stored;
// IoError.
// Threads: starts its own and joins them. Durability: on return the checkpoint survives power loss.
// Memory: the state twice.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/tensor_spec.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

struct Snapshot;

struct WholeState {
  std::int64_t step = 0;
  std::vector<TensorSpec> tensors;
  std::vector<std::span<const std::byte>> bytes;  // of each tensor
  Attributes attributes;                          // without the record of a run
};

// Throws UsageError, before anything is read that would be in vain.
void check_import_directory(FileSystem& file_system, const std::filesystem::path& directory);

// `weights`: tensors named "<module>/<key>", and attributes that belong to them. `source`: the file that they
// come from, for people.
CheckpointInfo import_weights(FileSystem& file_system, Clock& clock, const std::filesystem::path& directory,
                              const Snapshot& weights, const std::string& source);
CheckpointInfo import_state(FileSystem& file_system, Clock& clock, const std::filesystem::path& directory,
                            const WholeState& state, const std::string& source);

}}  // namespace holdfast::v0_2
