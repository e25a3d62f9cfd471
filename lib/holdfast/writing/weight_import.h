// Commits weights that another program wrote as an ordinary checkpoint, by the store's rules: the first one,
// at step 0, of a run directory that holds nothing else. Runs take their weights from it
// (StartOptions::init_from); none resumes from it, because it has no optimizer and no position.
//
// Errors: UsageError for a directory that is not empty; RefusedError for tensors that cannot be stored;
// IoError.
// Threads: starts its own and joins them. Durability: on return the checkpoint survives power loss.
// Memory: the weights twice.
#pragma once

#include <filesystem>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

struct Snapshot;

// `weights`: tensors named "<module>/<key>", and attributes that belong to them. `source`: the file that they
// come from, for people.
CheckpointInfo import_weights(FileSystem& file_system, Clock& clock, const std::filesystem::path& directory,
                              const Snapshot& weights, const std::string& source);

}}  // namespace holdfast::v0_2
