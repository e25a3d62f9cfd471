// A model's weights under the names that other tools use: a state dict, from key to tensor.
//
// In a checkpoint the tensors of module "model" are named "model/<key>". Tied weights are stored once, under
// their first key; for each other key the attribute "model.alias.<key>" names the stored tensor, which may be
// another module's. A state dict has all keys.
//
// Errors: a malformed file is a value; an error of the operating system is an IoError.
// Threads: free functions; read_weights starts its own threads and joins them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/safetensors_export.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::string_view kModelModule = "model";

// The state dict of one module of a checkpoint; empty if there is no such module.
std::vector<ExportedTensor> state_dict_of(const CheckpointIndex& index,
                                          std::string_view module = kModelModule);

// The parts that have a state dict. Of a module all tensors may be those of another one.
std::set<std::string> parts_with_tensors(const CheckpointIndex& index);

// The averages of a module's weights under the module's keys. `part` is the name of an Ema in the training
// state; it stores a tied weight once, and the module's aliases name it again.
std::vector<ExportedTensor> averaged_state_dict_of(const CheckpointIndex& index, std::string_view part,
                                                   std::string_view module = kModelModule);

// The weights of a file of safetensors or PyTorch (foreign_weights.h), in the form of
// LoadOptions::weights_only. `now`: attributes of the state that will take them. Keys that share a tensor
// there may all be in the file with equal bytes, or only one of them. Keys with another spelling there
// ("model.spellings", state/other_keys.h) are renamed.
std::variant<std::shared_ptr<Snapshot>, Rejection> read_weights(const File& foreign, const Attributes& now,
                                                                int threads = 2);

}}  // namespace holdfast::v0_2
