// Reads CIFAR-10 in its official binary layout: data_batch_1.bin to data_batch_5.bin and test_batch.bin. Each
// has 10,000 records of one label byte and 3 x 1024 bytes of planes R, G, B. Takes about 60 ms if the files
// are cached.
//
// Errors: RefusedError for a missing batch, a file of another size, or a label above 9. It names the file,
// the byte offset and what to do. IoError if a file cannot be read.
// Threads: free function.
#pragma once

#include <string>

#include "holdfast/base/export.h"
#include "holdfast/data/pictures.h"

namespace holdfast { inline namespace v0_2 {

// `folder` has the six files, or has a folder `cifar-10-batches-bin` with them.
HOLDFAST_EXPORT PictureSplits read_cifar10(const std::string& folder);

}}  // namespace holdfast::v0_2
