// The pictures, and loaders for this rank's share of them.
//
// Errors: those of read_cifar10 and Loader. Threads: read_pictures any; loaders belong to the training
// thread.
#pragma once

#include <c10/core/Device.h>

#include "holdfast/data/loader.h"
#include "holdfast/data/pictures.h"
#include "options.h"

namespace example {

holdfast::PictureSplits read_pictures(const Options& options);

struct Data {
  holdfast::Loader train;
  holdfast::Loader test;
};

Data make_loaders(const Options& options, at::Device device, holdfast::PictureSplits pictures);

}  // namespace example
