// How much two tensors differ; what `holdfast diff` found in the tensors of two files, and how it prints
// that: as lines and a table, or as JSON.
//
// Errors: none. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/dtype.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

struct TensorDifference {
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  // compared by bits: 0.0 and -0.0 differ, equal NaNs do not
  std::uint64_t first = 0;      // index of the first different element
  double largest = 0;           // largest absolute difference; infinite if one value is NaN or infinite
  // Largest number of representable values between two elements; nullopt for integers, and if one is a NaN.
  std::optional<std::uint64_t> ulp;
};

// Requires spans of equal size, a multiple of the element's. Compares complex numbers part by part.
TensorDifference compare_tensors(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b);

struct DifferingTensor {
  std::string name;
  TensorSpec spec;
  TensorDifference difference;
};

struct DifferingTensors {
  std::size_t total = 0;                 // tensors of the first file
  std::vector<DifferingTensor> changed;  // in value
  std::vector<std::string> others;       // lines for those that differ in name, type or shape
  std::vector<std::string> unread;       // lines for those that differ in value, as their digests alone tell

  bool any() const { return !changed.empty() || !others.empty() || !unread.empty(); }
  void add_only_in(const char* file, const std::string& name, const TensorSpec& spec);  // "first", "second"
  void add_other_spec(const std::string& name, const TensorSpec& first, const TensorSpec& second);
  // Differs by its digest, and a file has no more of it.
  void add_unread(const std::string& name, const TensorSpec& spec);

  // The lines, "tensors: 1 of 161 differ in value", the first and the worst of them; with `all` every one.
  void print(const char* what, bool all) const;
  void print_as_json(bool equal, const nlohmann::ordered_json& attributes) const;
};

}}  // namespace holdfast::v0_2
