// The only code that calls libhdf5: lays out a file for a list of tensors, and returns where everything lies.
//
// Errors: RefusedError, IoError. Threads: one at a time in the process; the function takes a lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/format/internal/hdf5/scratch_file.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Hdf5Layout {
  std::vector<std::uint64_t> offsets;  // from the file's start; 0 for empty tensors
  std::uint64_t step_offset = 0;
  std::uint64_t json_offset = 0;
};

// True if libhdf5 has its own lock, so that other code may call it at the same time.
bool hdf5_has_a_lock();

// Makes `file` an HDF5 file with this user block: groups, and datasets with space but no data. Removes the
// file's name.
Hdf5Layout lay_out_hdf5(ScratchFile& file, std::span<const TensorSpec> tensors,
                        std::uint64_t attribute_capacity, std::uint64_t user_block);

}}}  // namespace holdfast::v0_2::internal
