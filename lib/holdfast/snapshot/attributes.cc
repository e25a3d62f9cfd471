#include "holdfast/snapshot/attributes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// By index: in the order of AttributeValue's alternatives. The compiler checks only their number.
constexpr std::array<const char*, std::variant_size_v<AttributeValue>> kTypeNames{
    "a truth value",      "an integer",       "a float",        "a text",
    "a list of integers", "a list of floats", "a list of texts"};

bool same_item(double a, double b) {
  // By bits: NaN equals itself here, and -0.0 differs from 0.0, because a resumed run must have the same
  // bits.
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

template <class T>
bool same_item(const T& a, const T& b) {
  return a == b;
}

template <class T>
bool same_item(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return same_item(x, y); });
}

std::string item_text(bool value) { return value ? "true" : "false"; }
std::string item_text(std::int64_t value) { return std::to_string(value); }
std::string item_text(double value) { return shortest_decimal(value); }
std::string item_text(const std::string& value) {
  std::string text = "\"";
  // Quotes show where a text ends; an empty one would otherwise be invisible in a message.
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  // An escaped byte takes four, so this limit cuts nothing off.
  return printable(text, 4 * text.size()) + "\"";
}

template <class T>
std::string item_text(const std::vector<T>& items) {
  std::string text = "[";
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) text += ", ";
    text += item_text(items[i]);
  }
  return text + "]";
}

void check_text(std::string_view name, const std::string& value) {
  // The index is JSON, which can hold only UTF-8. Refused here, not in the middle of a save.
  if (!is_utf8(value)) {
    throw UsageError("attribute '" + printable(name) + "': the text '" + printable(value) + "' is not UTF-8");
  }
}

template <class T>
const T& get(const Attributes& attributes, std::string_view name) {
  const Attribute* const attribute = attributes.find(name);
  if (attribute == nullptr) {
    throw RefusedError("the recorded state has no attribute '" + printable(name) +
                       "': it was written by another program or another version of it");
  }
  if (const T* const value = std::get_if<T>(&attribute->value)) return *value;
  // std::variant does not tell the index of a type, only that of a value.
  static const std::size_t kWanted = AttributeValue(T{}).index();
  throw RefusedError("the recorded attribute '" + printable(name) + "' is " +
                     kTypeNames[attribute->value.index()] + ", not " + kTypeNames[kWanted] +
                     ": it was written by another program or another version of it");
}

}  // namespace

bool same_bits(const AttributeValue& a, const AttributeValue& b) {
  return std::visit(
      [](const auto& x, const auto& y) {
        if constexpr (std::is_same_v<decltype(x), decltype(y)>) {
          // Values of two types are never equal, even if 1 and 1.0 look alike.
          return same_item(x, y);
        } else {
          return false;
        }
      },
      a, b);
}

std::string to_text(const AttributeValue& value) {
  return std::visit([](const auto& item) { return item_text(item); }, value);
}

void Attributes::set(std::string name, AttributeValue value, Role role) {
  if (name.empty() || !is_utf8(name) || has_control(name)) {
    throw UsageError("attribute name '" + printable(name) +
                     "' is empty, not UTF-8 or has control characters");
  }
  if (const auto* const text = std::get_if<std::string>(&value)) check_text(name, *text);
  if (const auto* const texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *texts) check_text(name, text);
  }
  map_.insert_or_assign(std::move(name), Attribute(std::move(value), role));
}

void Attributes::erase(std::string_view name) {
  if (const auto found = map_.find(name); found != map_.end()) map_.erase(found);
}

bool Attributes::has(std::string_view name) const { return map_.contains(name); }

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = map_.find(name);
  return found == map_.end() ? nullptr : &found->second;
}

bool Attributes::get_bool(std::string_view name) const { return get<bool>(*this, name); }
std::int64_t Attributes::get_int(std::string_view name) const { return get<std::int64_t>(*this, name); }
double Attributes::get_double(std::string_view name) const { return get<double>(*this, name); }
const std::string& Attributes::get_string(std::string_view name) const {
  return get<std::string>(*this, name);
}
const std::vector<std::int64_t>& Attributes::get_ints(std::string_view name) const {
  return get<std::vector<std::int64_t>>(*this, name);
}
const std::vector<double>& Attributes::get_doubles(std::string_view name) const {
  return get<std::vector<double>>(*this, name);
}
const std::vector<std::string>& Attributes::get_strings(std::string_view name) const {
  return get<std::vector<std::string>>(*this, name);
}

std::vector<std::pair<std::string, Attribute>> Attributes::with_prefix(std::string_view prefix) const {
  std::vector<std::pair<std::string, Attribute>> found;
  for (auto it = map_.lower_bound(prefix); it != map_.end() && it->first.starts_with(prefix); ++it) {
    found.emplace_back(*it);
  }
  return found;
}

}}  // namespace holdfast::v0_2
