// What the golden file of format 1 holds: every dtype, awkward names and numbers, each byte from a formula.
#pragma once

#include <bit>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/format/image_writer.h"

namespace holdfast::test {

inline constexpr char kGolden[] = HOLDFAST_SOURCE_DIR "/tests/golden/format_v1.h5";
// The same state, written after HDF5's root group got attributes, which the format leaves free.
inline constexpr char kGoldenWithAttrs[] = HOLDFAST_SOURCE_DIR "/tests/golden/format_v1_attrs.h5";

inline std::vector<TensorSpec> tensors() {
  std::vector<TensorSpec> specs;
  for (int i = 0; i <= 16; ++i) {
    const auto dtype = static_cast<DType>(i);
    specs.push_back({"model/" + std::string(name_of(dtype)), dtype, {2, 3}});
  }
  specs.push_back({"model/scalar", DType::float32, {}});
  specs.push_back({"model/empty", DType::int64, {3, 0}});
  specs.push_back({"optimizer/momentum_buffer/schl\u00fcssel \"\\", DType::float32, {7}});
  specs.push_back({"rng/cpu", DType::uint8, {5056}});
  return specs;
}

inline Attributes attributes() {
  Attributes all;
  all.set("step", std::int64_t{1234567890123});
  all.set("lr", 0.1);
  all.set("nan", std::bit_cast<double>(0x7ff8dead0000beefull));
  all.set("floats", std::vector<double>{-0.0, std::numeric_limits<double>::infinity(), 5e-324});
  all.set("integers", std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min(), 0});
  all.set("texts", std::vector<std::string>{"", "a\n\"\\\x01\x7f", "\u00e9"});
  all.set("flag", true);
  all.set("optimizer", std::string("sgd"));
  all.set("host", std::string("somewhere"), Role::record);
  return all;
}

inline std::shared_ptr<Snapshot> golden_snapshot(const FilePlan& plan) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = plan.layout;
  snapshot->arena = make_image(plan);
  snapshot->attributes = attributes();
  snapshot->step = 1234567890123;
  for (std::size_t i = 0; i < plan.layout->tensors().size(); ++i) {
    const auto slot = plan.layout->slot(i, snapshot->arena->bytes());
    const bool boolean = plan.layout->tensors()[i].dtype == DType::boolean;
    for (std::size_t b = 0; b < slot.size(); ++b) {
      slot[b] = static_cast<std::byte>((37 * b + 11 * i + b * b / 7) & (boolean ? 1 : 255));
    }
  }
  return snapshot;
}

inline std::shared_ptr<const FilePlan> golden_plan() { return make_file_plan(tensors(), 2048); }

}  // namespace holdfast::test
