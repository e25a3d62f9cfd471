// The only code that calls libhdf5: has it lay out a file for a list of tensors and says where everything
// went.
//
// Threads: one at a time in the process; the function takes a lock of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/format/internal/scratch_file.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast::inline v1::internal {

struct Hdf5Layout {
  std::vector<std::uint64_t> offsets;  // absolute; 0 for empty tensors
  std::uint64_t step_offset = 0;
  std::uint64_t json_offset = 0;
};

// Of libhdf5's own, so that others may call it meanwhile.
bool hdf5_has_a_lock();

// Makes `file` an HDF5 file with this user block: groups and datasets with their space, no data. Drops its
// name.
Hdf5Layout lay_out_hdf5(ScratchFile& file, std::span<const TensorSpec> tensors,
                        std::uint64_t attribute_capacity, std::uint64_t user_block);

}  // namespace holdfast::inline v1::internal
