// The two originals of SSD300 behind make_ssd300().
//
// Errors: none of their own; make_ssd300() has checked the options. Threads: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "holdfast/models/ssd300.h"

namespace holdfast::inline v1::models {

// Boxes a cell, map by map: how many channels the heads have.
inline constexpr std::array<std::int64_t, 6> kSsdBoxesOfCell{4, 6, 6, 6, 4, 4};

std::shared_ptr<Ssd300> make_ssd300_resnet34(const Ssd300Options& options);
std::shared_ptr<Ssd300> make_ssd300_vgg16(const Ssd300Options& options);

}  // namespace holdfast::inline v1::models
