// Crops, mirrors and normalises a batch of pictures where their bytes are: augment_picture() on a device. The
// caller draws the choices and makes the table; the kernel computes only integers, so all devices give equal
// results.
//
// Threads: launches on the device's current stream and does not wait for it.
#pragma once

#include <ATen/core/Tensor.h>

#include "holdfast/data/augment.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The pictures of a data set. All tensors are contiguous and on one device.
struct ResidentBytes {
  PictureShape shape;
  int padding = 0;
  at::Tensor records;  // uint8 [pictures, 1 + bytes]: label, planes
  at::Tensor table;    // float32 [channels, 257]: NormalizeTable::value
};

// Row i of `choices` (int64 [batch, 4]: sample, top, left, flip) gives inputs[i] (float32 [batch, channels,
// height, width], contiguous or channels_last) and targets[i] (int64 [batch]). Requires: all on the same
// device, existing samples, corners in the padded picture.
void crop_flip_normalize(const ResidentBytes& from, const at::Tensor& choices, at::Tensor& inputs,
                         at::Tensor& targets);

}}}  // namespace holdfast::v0_2::internal
