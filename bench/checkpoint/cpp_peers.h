// The C++ peers: the same tensors by torch::save and by H5Dwrite, made durable as ours are.
//
// Errors: IoError; what the peer throws. Threads: one thread.
#pragma once

#include <filesystem>

#include "training_state.h"

namespace holdfast::bench {

// Each writes `folder`/final through a temporary file and removes it afterwards; seconds from the call until
// it would survive a power cut.
double torch_save(TrainingState& state, const std::filesystem::path& folder);
double hdf5_write(TrainingState& state, const std::filesystem::path& folder);

}  // namespace holdfast::bench
