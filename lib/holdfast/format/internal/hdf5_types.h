// Element types as libhdf5 knows them; what h5py makes of each is tested.
//
// Threads: as hdf5_handle.h.
#pragma once

#include "holdfast/format/internal/hdf5_handle.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast::inline v1::internal {

Hdf5Handle hdf5_type(DType dtype);
// A UTF-8 text of `size` bytes, padded with NUL.
Hdf5Handle hdf5_text_type(std::size_t size);
// True for types that HDF5 lacks and stores as bytes; their datasets say so in an attribute "dtype".
bool stored_as_bytes(DType dtype);

}  // namespace holdfast::inline v1::internal
