// What tests save: a module of any tensors, and a user's own state.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/stateful.h"

namespace holdfast::test {

// A module of whatever tensors a test needs.
struct Bag final : torch::nn::Module {
  Bag& parameter(const std::string& name, const at::Tensor& value, bool grad = true) {
    register_parameter(name, value, grad);
    return *this;
  }
  // Another object under a name that is registered.
  void replace(const std::string& name, const at::Tensor& value) { parameters_[name] = value; }
  Bag& buffer(const std::string& name, const at::Tensor& value) {
    register_buffer(name, value);
    return *this;
  }
  template <class M>
  M child(const std::string& name, M module) {
    return register_module(name, std::move(module));
  }
};

// A user's own state: an average with tensors, an option, and a way to fail.
struct Average {
  void save(StateWriter& out) const {
    out.option("decay", decay);
    out.put("updates", updates);
    out.note("comment", std::string("for people"));
    if (updates > 0) out.put_tensor("mean/first", mean);
  }
  void load(const StateReader& in) {
    updates = in.get_int("updates");
    mean = in.has_tensor("mean/first") ? in.get_tensor("mean/first") : at::Tensor();
    if (fails) throw RefusedError("the average is broken");
  }
  double decay = 0.9;
  std::int64_t updates = 0;
  at::Tensor mean;
  bool fails = false;
};

}  // namespace holdfast::test
