// Reads CIFAR-10 in its official binary layout: data_batch_1.bin ... data_batch_5.bin and test_batch.bin,
// each 10,000 records of one label byte and 3 x 1024 bytes of planes R, G, B.
//
// Errors: RefusedError that names the file, the byte offset and what to do, for a missing batch, a file of
// another size, or a label over 9; IoError when a file cannot be read. Takes about 60 ms when the files are
// cached.
#pragma once

#include <string>

#include "holdfast/data/pictures.h"

namespace holdfast::inline v1 {

// `folder` holds the six files, or a folder `cifar-10-batches-bin` that does.
PictureSplits read_cifar10(const std::string& folder);

}  // namespace holdfast::inline v1
