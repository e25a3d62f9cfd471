#include "holdfast/cli/weights/differing_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/table.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The number type of an element's parts; a complex element has two.
struct Kind {
  enum class Class { unsigned_integer, signed_integer, floating } number_class;
  int bytes;
  int exponent_bits = 0;
  int mantissa_bits = 0;
  bool infinities = true;  // false for float8_e4m3fn
  int parts = 1;
};

Kind kind_of(DType dtype) {
  using enum Kind::Class;
  switch (dtype) {
    case DType::boolean:
    case DType::uint8:
      return {unsigned_integer, 1};
    case DType::uint16:
      return {unsigned_integer, 2};
    case DType::uint32:
      return {unsigned_integer, 4};
    case DType::uint64:
      return {unsigned_integer, 8};
    case DType::int8:
      return {signed_integer, 1};
    case DType::int16:
      return {signed_integer, 2};
    case DType::int32:
      return {signed_integer, 4};
    case DType::int64:
      return {signed_integer, 8};
    case DType::float16:
      return {floating, 2, 5, 10};
    case DType::bfloat16:
      return {floating, 2, 8, 7};
    case DType::float32:
      return {floating, 4, 8, 23};
    case DType::float64:
      return {floating, 8, 11, 52};
    case DType::complex64:
      return {floating, 4, 8, 23, true, 2};
    case DType::complex128:
      return {floating, 8, 11, 52, true, 2};
    case DType::float8_e4m3fn:
      return {floating, 1, 4, 3, false};
    case DType::float8_e5m2:
      return {floating, 1, 5, 2};
  }
  throw Error("element type without a comparison");
}

std::uint64_t load(const std::byte* from, int bytes) {
  std::uint64_t bits = 0;
  // Checkpoints hold little-endian numbers.
  for (int i = 0; i < bytes; ++i) bits |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return bits;
}

double float_of(std::uint64_t bits, const Kind& kind) {
  const std::uint64_t mantissa = bits & ((std::uint64_t{1} << kind.mantissa_bits) - 1);
  const std::uint64_t most = (std::uint64_t{1} << kind.exponent_bits) - 1;
  const std::uint64_t exponent = bits >> kind.mantissa_bits & most;
  const bool negative = (bits >> (8 * kind.bytes - 1) & 1) != 0;
  const int bias = (1 << (kind.exponent_bits - 1)) - 1;
  double value = 0;
  // Without infinities only the pattern of all ones is NaN; the rest of the largest exponent are numbers.
  if (exponent == most && (kind.infinities || mantissa == (1u << kind.mantissa_bits) - 1)) {
    value =
        mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    // A subnormal number has no hidden bit, and the exponent of the smallest normal ones.
    value = std::ldexp(static_cast<double>(mantissa), 1 - bias - kind.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | std::uint64_t{1} << kind.mantissa_bits),
                       static_cast<int>(exponent) - bias - kind.mantissa_bits);
  }
  return negative ? -value : value;
}

// Number of representable values from `a` to `b`.
std::uint64_t steps_between(std::uint64_t a, std::uint64_t b, const Kind& kind) {
  const std::uint64_t sign = std::uint64_t{1} << (8 * kind.bytes - 1);
  const std::uint64_t x = a & ~sign;
  const std::uint64_t y = b & ~sign;
  // Sign and magnitude: across zero, both distances to zero add up.
  if ((a & sign) != (b & sign)) return x + y;
  return x > y ? x - y : y - x;
}

// Integers are subtracted as integers: in double, neighbours above 2^53 would be equal.
double distance(std::uint64_t a, std::uint64_t b, const Kind& kind) {
  switch (kind.number_class) {
    case Kind::Class::unsigned_integer:
      return static_cast<double>(a > b ? a - b : b - a);
    case Kind::Class::signed_integer: {
      // Flips the sign bit, so that unsigned order equals signed order.
      const std::uint64_t sign = std::uint64_t{1} << (8 * kind.bytes - 1);
      const std::uint64_t x = a ^ sign;
      const std::uint64_t y = b ^ sign;
      return static_cast<double>(x > y ? x - y : y - x);
    }
    case Kind::Class::floating:
      break;
  }
  const double x = float_of(a, kind);
  const double y = float_of(b, kind);
  // Two NaN with different bits differ by no amount.
  if (std::isnan(x) && std::isnan(y)) return 0;
  const double difference = std::abs(x - y);
  // NaN against a number counts as the largest difference: std::max() would pass over a NaN.
  return std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
}

}  // namespace

TensorDifference compare_tensors(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const Kind kind = kind_of(dtype);
  const std::size_t size = size_of(dtype);
  if (a.size() != b.size() || a.size() % size != 0)
    throw Error("tensors of different size cannot be compared");

  TensorDifference result;
  result.elements = a.size() / size;
  const bool floating = kind.number_class == Kind::Class::floating;
  bool has_nan = false;
  std::uint64_t ulp = 0;
  for (std::uint64_t element = 0; element < result.elements; ++element) {
    const std::size_t at = element * size;
    // Bits decide: 0 differs from -0, and a NaN equals its copy.
    if (std::memcmp(&a[at], &b[at], size) == 0) continue;
    if (result.different++ == 0) result.first = element;
    for (int part = 0; part < kind.parts; ++part) {
      const std::size_t offset = at + static_cast<std::size_t>(part * kind.bytes);
      const std::uint64_t x = load(&a[offset], kind.bytes);
      const std::uint64_t y = load(&b[offset], kind.bytes);
      if (x == y) continue;
      result.largest = std::max(result.largest, distance(x, y, kind));
      if (!floating) continue;
      if (std::isnan(float_of(x, kind)) || std::isnan(float_of(y, kind))) {
        has_nan = true;
      } else {
        ulp = std::max(ulp, steps_between(x, y, kind));
      }
    }
  }
  if (floating && result.different != 0 && !has_nan) result.ulp = ulp;
  return result;
}

void DifferingTensors::add_only_in(const char* file, const std::string& name, const TensorSpec& spec) {
  others.push_back(std::string("only in the ") + file + ": " + printable(name) + "  " + spec_text(spec));
}

void DifferingTensors::add_other_spec(const std::string& name, const TensorSpec& first,
                                      const TensorSpec& second) {
  others.push_back(printable(name) + ": " + spec_text(first) + " in the first, " + spec_text(second) +
                   " in the second");
}

void DifferingTensors::add_unread(const std::string& name, const TensorSpec& spec) {
  unread.push_back(printable(name) + "  " + spec_text(spec) +
                   ": other bytes (frozen: a file has its digest alone)");
}

void DifferingTensors::print(const char* what, bool all) const {
  for (const std::string& line : others) std::cout << "  " << line << '\n';
  for (const std::string& line : unread) std::cout << "  " << line << '\n';
  std::cout << what << ": " << changed.size() + unread.size() << " of " << total << " differ in value";
  if (!others.empty()) std::cout << ", " << others.size() << " in name, type or shape";
  std::cout << '\n';
  if (changed.empty()) return;
  using enum Table::Align;
  Table table({left, left, left, left, left, right});
  const auto add = [&](const char* label, const DifferingTensor& each) {
    const TensorDifference& d = each.difference;
    table.add({label, each.name, spec_text(each.spec),
               format_count(static_cast<std::int64_t>(d.different)) + " of " +
                   format_count(static_cast<std::int64_t>(d.elements)) + ", from element " +
                   std::to_string(d.first),
               "max |a-b| " + format_number(d.largest),
               d.ulp ? std::to_string(*d.ulp) + " ulp" : std::string()});
  };
  add("first", changed.front());
  // `largest` is infinite where a value is NaN, and never NaN itself, so this comparison is an order.
  add("worst", *std::max_element(changed.begin(), changed.end(),
                                 [](const DifferingTensor& a, const DifferingTensor& b) {
                                   return a.difference.largest < b.difference.largest;
                                 }));
  if (all) {
    for (const DifferingTensor& each : changed) add("", each);
  }
  table.print(std::cout, 2);
}

void DifferingTensors::print_as_json(bool equal, const nlohmann::ordered_json& attributes) const {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const DifferingTensor& each : changed) {
    const TensorDifference& d = each.difference;
    list.push_back({{"name", each.name},
                    {"elements", d.elements},
                    {"different", d.different},
                    {"first", d.first},
                    {"largest", json_number(d.largest)},
                    {"ulp", d.ulp ? Json(*d.ulp) : Json(nullptr)}});
  }
  Json other = others;
  for (const std::string& line : unread) other.push_back(line);
  print_json({{"schema", kJsonSchema},
              {"equal", equal},
              {"tensors", total},
              {"changed", list},
              {"other", other},
              {"attributes", attributes}});
}

}}  // namespace holdfast::v0_2
