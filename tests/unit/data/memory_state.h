// A StateWriter and a StateReader over plain maps, for components that put no tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <variant>

#include "holdfast/base/error.h"
#include "holdfast/state/stateful.h"

namespace holdfast_test {

class MemoryState final : public holdfast::StateWriter, public holdfast::StateReader {
 public:
  std::map<std::string, holdfast::AttributeValue, std::less<>> values;
  std::set<std::string, std::less<>> options;

  void put_tensor(std::string_view name, const at::Tensor&) override {
    throw holdfast::Error("unexpected tensor " + std::string(name));
  }

  bool has(std::string_view name) const override { return values.contains(name); }
  bool has_tensor(std::string_view) const override { return false; }
  bool get_bool(std::string_view name) const override { return get<bool>(name); }
  std::int64_t get_int(std::string_view name) const override { return get<std::int64_t>(name); }
  double get_double(std::string_view name) const override { return get<double>(name); }
  std::string get_string(std::string_view name) const override { return get<std::string>(name); }
  std::vector<std::int64_t> get_ints(std::string_view name) const override {
    return get<std::vector<std::int64_t>>(name);
  }
  std::vector<double> get_doubles(std::string_view name) const override {
    return get<std::vector<double>>(name);
  }
  std::vector<std::string> get_strings(std::string_view name) const override {
    return get<std::vector<std::string>>(name);
  }
  at::Tensor get_tensor(std::string_view name) const override {
    throw holdfast::RefusedError("no tensor " + std::string(name));
  }

 private:
  void attribute(std::string_view name, holdfast::AttributeValue value, holdfast::Role) override {
    values.insert_or_assign(std::string(name), std::move(value));
  }
  void declare_option(std::string_view name) override { options.emplace(name); }

  template <class T>
  T get(std::string_view name) const {
    const auto found = values.find(name);
    if (found == values.end() || !std::holds_alternative<T>(found->second)) {
      throw holdfast::RefusedError("attribute " + std::string(name) + " is missing");
    }
    return std::get<T>(found->second);
  }
};

}  // namespace holdfast_test
