// Name, type and shape of one tensor of a training state.
//
// A name is a path of at least two components, "group/…/leaf": "model/layer1.0.conv1.weight", "rng/cpu".
// Components are non-empty UTF-8, not "." or "..", without NUL and '/'. A name has at most 1,024 bytes. It is
// a key, never a file path.
//
// Errors: check_tensor_specs throws RefusedError with the tensor: a bad name, a duplicate, a negative or
// overflowing size, or a name that is also a group.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/dtype.h"

namespace holdfast { inline namespace v0_2 {

struct HOLDFAST_EXPORT TensorSpec {
  std::string name;
  DType dtype = DType::float32;
  std::vector<std::int64_t> shape;  // empty: a scalar

  std::uint64_t elements() const;  // this and bytes(): RefusedError as above
  std::uint64_t bytes() const;
  bool operator==(const TensorSpec&) const = default;
};

HOLDFAST_EXPORT void check_tensor_specs(std::span<const TensorSpec> specs);
HOLDFAST_EXPORT std::string shape_text(std::span<const std::int64_t> shape);  // "[64, 3, 7, 7]"

}}  // namespace holdfast::v0_2
