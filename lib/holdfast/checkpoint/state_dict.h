// A model's weights under the names that others give them: a state dict, from key to tensor.
//
// Here the tensors of a module "model" are called "model/<key>", and one that two keys share (tied weights)
// is stored once, under its first key; for every other there is an attribute "model.alias.<key>", the stored
// tensor's name. A state dict has all keys.
//
// Errors: what is wrong with a file is a value; what the operating system refuses is an IoError.
// Threads: free functions; `read_weights` starts its own threads and is gone with them.
#pragma once

#include <memory>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/safetensors_export.h"

namespace holdfast::inline v1 {

inline constexpr std::string_view kModelModule = "model";

// The state dict of one module of a checkpoint; empty when it has no such module.
std::vector<ExportedTensor> state_dict_of(const CheckpointIndex& index,
                                          std::string_view module = kModelModule);

// The weights in a safetensors file, as SnapshotSource::load_weights wants them. `now` are the attributes of
// the state that will take them: keys that share a tensor there may all be in the file, with the same bytes,
// or only one of them. Keys that it spells otherwise ("model.spellings", state/other_keys.h) get its
// spelling.
std::variant<std::shared_ptr<Snapshot>, Rejection> read_weights(const File& safetensors,
                                                                const Attributes& now, int threads = 2);

}  // namespace holdfast::inline v1
