// A component's state without tensors, kept in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/state/stateful.h"

namespace holdfast::test {

class AttributesOnly final : public StateWriter, public StateReader {
 public:
  void put_tensor(std::string_view, const at::Tensor&) override {}
  bool has(std::string_view name) const override { return values.has(name); }
  bool has_tensor(std::string_view) const override { return false; }
  bool get_bool(std::string_view name) const override { return values.get_bool(name); }
  std::int64_t get_int(std::string_view name) const override { return values.get_int(name); }
  double get_double(std::string_view name) const override { return values.get_double(name); }
  std::string get_string(std::string_view name) const override { return values.get_string(name); }
  std::vector<std::int64_t> get_ints(std::string_view name) const override { return values.get_ints(name); }
  std::vector<double> get_doubles(std::string_view name) const override { return values.get_doubles(name); }
  std::vector<std::string> get_strings(std::string_view name) const override {
    return values.get_strings(name);
  }
  at::Tensor get_tensor(std::string_view name) const override { throw RefusedError(std::string(name)); }

  Attributes values;

 private:
  void attribute(std::string_view name, AttributeValue value, Role role) override {
    values.set(std::string(name), std::move(value), role);
  }
  void declare_option(std::string_view) override {}
};

}  // namespace holdfast::test
