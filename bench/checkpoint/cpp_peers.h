// The C++ peers: torch::save and H5Dwrite of the same tensors, made durable like Holdfast's files.
//
// Errors: IoError; what the peer throws. Threads: one thread.
#pragma once

#include <filesystem>

#include "training_state.h"

namespace holdfast::bench {

// Each writes `folder`/final through a temporary file and then removes it. Returns seconds until the file
// would survive a power cut.
double torch_save(TrainingState& state, const std::filesystem::path& folder);
double hdf5_write(TrainingState& state, const std::filesystem::path& folder);

}  // namespace holdfast::bench
