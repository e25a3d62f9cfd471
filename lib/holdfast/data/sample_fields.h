// Splits a sample of a user's data set into tensors; dataset.h lists the types, others do not compile. Pure
// functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

HOLDFAST_EXPORT at::Tensor number_field(std::int64_t value);
HOLDFAST_EXPORT at::Tensor number_field(bool value);
HOLDFAST_EXPORT at::Tensor number_field(float value);
HOLDFAST_EXPORT at::Tensor number_field(double value);

struct AnyField {
  template <class T>
  operator T() const;  // NOLINT: only named in unevaluated operands
};

template <class T, class... Fields>
concept BraceBuildable = requires {
  T{Fields{}...};
};

// Number of members of an aggregate, up to six. 0 if it has more or is no aggregate.
template <class T>
constexpr int field_count() {
  using F = AnyField;
  if constexpr (!std::is_aggregate_v<T> || BraceBuildable<T, F, F, F, F, F, F, F>)
    return 0;
  else if constexpr (BraceBuildable<T, F, F, F, F, F, F>)
    return 6;
  else if constexpr (BraceBuildable<T, F, F, F, F, F>)
    return 5;
  else if constexpr (BraceBuildable<T, F, F, F, F>)
    return 4;
  else if constexpr (BraceBuildable<T, F, F, F>)
    return 3;
  else if constexpr (BraceBuildable<T, F, F>)
    return 2;
  else
    return 1;
}

template <class F>
at::Tensor field(const F& value) {
  if constexpr (std::same_as<F, bool> || std::same_as<F, float> || std::same_as<F, double>) {
    return number_field(value);
  } else if constexpr (std::integral<F>) {
    return number_field(static_cast<std::int64_t>(value));
  } else {
    static_assert(std::convertible_to<const F&, at::Tensor>, "a sample's fields must be tensors or numbers");
    return value;
  }
}

template <class... F>
std::vector<at::Tensor> fields(const F&... values) {
  return {field(values)...};
}

template <class S>
std::vector<at::Tensor> sample_fields(const S& sample) {
  if constexpr (std::convertible_to<const S&, at::Tensor> || std::is_arithmetic_v<S>) {
    return fields(sample);
  } else if constexpr (requires {
                         sample.data;
                         sample.target;
                       }) {  // torch::data::Example
    return fields(sample.data, sample.target);
  } else if constexpr (requires { std::tuple_size<S>::value; }) {
    return std::apply([](const auto&... values) { return fields(values...); }, sample);
  } else {
    constexpr int kCount = field_count<S>();
    static_assert(kCount > 0, "a sample must be a tensor, a tuple, or a plain struct of up to six fields");
    if constexpr (kCount == 1) {
      const auto& [a] = sample;
      return fields(a);
    } else if constexpr (kCount == 2) {
      const auto& [a, b] = sample;
      return fields(a, b);
    } else if constexpr (kCount == 3) {
      const auto& [a, b, c] = sample;
      return fields(a, b, c);
    } else if constexpr (kCount == 4) {
      const auto& [a, b, c, d] = sample;
      return fields(a, b, c, d);
    } else if constexpr (kCount == 5) {
      const auto& [a, b, c, d, e] = sample;
      return fields(a, b, c, d, e);
    } else {
      const auto& [a, b, c, d, e, f] = sample;
      return fields(a, b, c, d, e, f);
    }
  }
}

}}}  // namespace holdfast::v0_2::internal
