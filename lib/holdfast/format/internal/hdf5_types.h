// Element types in libhdf5's terms. A test compares what h5py reads of each.
//
// Errors: RefusedError. Threads: as hdf5_handle.h.
#pragma once

#include "holdfast/format/internal/hdf5_handle.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

Hdf5Handle hdf5_type(DType dtype);
// A UTF-8 text type of `size` bytes, padded with NUL.
Hdf5Handle hdf5_text_type(std::size_t size);
// True for types that HDF5 lacks and stores as bytes; their datasets name the type in an attribute "dtype".
bool stored_as_bytes(DType dtype);

}}}  // namespace holdfast::v0_2::internal
