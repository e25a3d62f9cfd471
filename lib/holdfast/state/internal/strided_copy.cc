#include "holdfast/state/internal/strided_copy.h"

#include <cstring>
#include <type_traits>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Visits elements in logical order until `visit` returns false.
template <std::size_t kElement, class Visit>
bool walk(const Strided& tensor, std::size_t dimension, const std::byte* from, const Visit& visit) {
  const std::int64_t size = tensor.sizes[dimension];
  const auto step = tensor.strides[dimension] * static_cast<std::int64_t>(kElement);
  if (dimension + 1 == tensor.sizes.size()) {
    for (std::int64_t i = 0; i < size; ++i, from += step) {
      if (!visit(from)) return false;
    }
    return true;
  }
  for (std::int64_t i = 0; i < size; ++i, from += step) {
    if (!walk<kElement>(tensor, dimension + 1, from, visit)) return false;
  }
  return true;
}

template <std::size_t kElement>
void copy_elements(const Strided& tensor, std::byte* to) {
  walk<kElement>(tensor, 0, tensor.from, [&to](const std::byte* element) {
    std::memcpy(to, element, kElement);
    to += kElement;
    return true;
  });
}

template <std::size_t kElement>
bool same_elements(const Strided& tensor, const std::byte* image) {
  return walk<kElement>(tensor, 0, tensor.from, [&image](const std::byte* element) {
    // By bytes, because as numbers NaN differs from itself, and -0.0 equals 0.0.
    const bool same = std::memcmp(image, element, kElement) == 0;
    image += kElement;
    return same;
  });
}

// Calls `work` with the size of an element as a constant, so that each memcpy is one or two instructions.
template <class Work>
auto with_element(std::size_t bytes, const Work& work) {
  switch (bytes) {
    case 1:
      return work(std::integral_constant<std::size_t, 1>());
    case 2:
      return work(std::integral_constant<std::size_t, 2>());
    case 4:
      return work(std::integral_constant<std::size_t, 4>());
    case 8:
      return work(std::integral_constant<std::size_t, 8>());
    // Complex numbers in double; no type that can be stored is larger.
    default:
      return work(std::integral_constant<std::size_t, 16>());
  }
}

}  // namespace

Strided strided(const std::byte* from, std::size_t element, c10::ArrayRef<std::int64_t> sizes,
                c10::ArrayRef<std::int64_t> strides) {
  Strided tensor;
  tensor.from = from;
  tensor.element = element;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // Dimensions of size 1 and those that lie together are merged, which makes the inner loop long.
    if (sizes[i] == 1) continue;
    if (!tensor.sizes.empty() && tensor.strides.back() == strides[i] * sizes[i]) {
      tensor.sizes.back() *= sizes[i];
      tensor.strides.back() = strides[i];
    } else {
      tensor.sizes.push_back(sizes[i]);
      tensor.strides.push_back(strides[i]);
    }
  }
  if (tensor.sizes.empty()) {  // the tensor has one element
    tensor.sizes.push_back(1);
    tensor.strides.push_back(1);
  }
  return tensor;
}

void copy_strided(const Strided& tensor, std::byte* to) noexcept {
  with_element(tensor.element, [&](auto bytes) { copy_elements<bytes.value>(tensor, to); });
}

bool same_as_strided(const Strided& tensor, const std::byte* image) noexcept {
  return with_element(tensor.element, [&](auto bytes) { return same_elements<bytes.value>(tensor, image); });
}

}}}  // namespace holdfast::v0_2::internal
