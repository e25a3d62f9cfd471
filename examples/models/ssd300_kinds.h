// The two originals of SSD300, for make_ssd300().
//
// Errors: none; make_ssd300() has checked the options. Threads: as torch::nn::Module.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "examples/models/ssd300.h"

namespace holdfast { inline namespace v0_2 { namespace models {

// Boxes per cell of each map; they decide the number of channels of the heads.
inline constexpr std::array<std::int64_t, 6> kSsdBoxesOfCell{4, 6, 6, 6, 4, 4};

std::shared_ptr<Ssd300> make_ssd300_resnet34(const Ssd300Options& options);
std::shared_ptr<Ssd300> make_ssd300_vgg16(const Ssd300Options& options);

}}}  // namespace holdfast::v0_2::models
