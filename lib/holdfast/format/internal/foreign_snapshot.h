// The snapshot that takes the tensors of a foreign file (safetensors, PyTorch): their names, types and
// places, without their bytes.
//
// Errors: see below. Threads: pure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/round_up.h"
#include "holdfast/format/byte_types.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// A cache line, as in PyTorch's own archives, so that vector loads from the image are fast.
inline constexpr std::uint64_t kForeignAlignment = 64;

// Tensors become "<group>/<key>", or "<key>" without a group. A name that no checkpoint can hold is damage:
// these formats allow any text as a key.
template <class Tensor>
std::variant<std::shared_ptr<Snapshot>, Rejection> foreign_snapshot(const std::vector<Tensor>& tensors,
                                                                    std::string_view group) {
  auto snapshot = std::make_shared<Snapshot>();
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  std::uint64_t length = 0;
  try {
    for (const Tensor& tensor : tensors) {
      specs.push_back(tensor.spec);
      if (!group.empty()) specs.back().name = std::string(group) + "/" + tensor.spec.name;
      if (tensor.type == nullptr) continue;
      snapshot->attributes.set(byte_type_attribute(group, tensor.spec.name), std::string(tensor.type->name));
    }
    check_tensor_specs(specs);
  } catch (const Error& error) {
    return damaged(error.what());
  }
  for (const TensorSpec& spec : specs) {
    offsets.push_back(length);
    length += holdfast::round_up(spec.bytes(), kForeignAlignment);
  }
  snapshot->layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), length);
  snapshot->arena = std::make_shared<Arena>(length);
  return snapshot;
}

}}}  // namespace holdfast::v0_2::internal
