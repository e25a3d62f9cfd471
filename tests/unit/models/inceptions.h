// Inceptions as their tests want them.
#pragma once

#include <cstdint>
#include <string>

#include "examples/models/picture_model.h"
#include "unit/models/on_one_thread.h"

namespace holdfast::test {

inline PictureModel undrawn(const std::string& name, ModelVariant variant = ModelVariant::torchvision,
                            bool auxiliary = false, std::int64_t classes = 1000) {
  return make_picture_model({.name = name,
                             .variant = variant,
                             .num_classes = classes,
                             .dropout = 0,
                             .auxiliary = auxiliary,
                             .initialize = false});
}

}  // namespace holdfast::test
