#include "holdfast/format/internal/index_json.h"

#include <cmath>

#include "holdfast/base/bits.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Each text has one spelling, which no library's version decides: equal states must give equal bytes.
void put_text(std::string& json, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  // Byte by byte: the text was checked to be UTF-8, so only quotes, backslashes and controls need care.
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += "\\u00";
      json += kHex[static_cast<unsigned char>(c) >> 4];
      json += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      json += c;
    }
  }
  json += '"';
}

// How to write a double in an attribute: as bits for the index, as a decimal for people.
using PutFloat = void (*)(std::string&, double);

void put_bits(std::string& json, double value) { put_text(json, bits_hex(value)); }

void put_decimal(std::string& json, double value) {
  // JSON has no number for infinity and NaN, so foreign tools get the word.
  if (std::isfinite(value)) {
    json += shortest_decimal(value);
  } else {
    put_text(json, shortest_decimal(value));
  }
}

void put_item(std::string& json, std::int64_t value, PutFloat) { json += std::to_string(value); }
void put_item(std::string& json, double value, PutFloat put_float) { put_float(json, value); }
void put_item(std::string& json, const std::string& value, PutFloat) { put_text(json, value); }

template <class T>
void put_list(std::string& json, const std::vector<T>& items, PutFloat put_float) {
  json += '[';
  for (const T& item : items) {
    if (json.back() != '[') json += ',';
    put_item(json, item, put_float);
  }
  json += ']';
}

struct PutTyped {
  std::string& json;
  void operator()(bool value) const { json += value ? "true" : "false"; }
  void operator()(std::int64_t value) const { json += std::to_string(value); }
  void operator()(const std::string& value) const { put_text(json, value); }
  // As bits, because decimal JSON has no nan or inf and a reader might round.
  void operator()(double value) const {
    wrap("float", [&] { put_bits(json, value); });
  }
  // Lists name their type, because an empty list does not show it.
  void operator()(const std::vector<std::int64_t>& items) const {
    wrap("integers", [&] { put_list(json, items, put_bits); });
  }
  void operator()(const std::vector<double>& items) const {
    wrap("floats", [&] { put_list(json, items, put_bits); });
  }
  void operator()(const std::vector<std::string>& items) const {
    wrap("texts", [&] { put_list(json, items, put_bits); });
  }

 private:
  template <class Put>
  void wrap(const char* type, Put put) const {
    json += "{\"";
    json += type;
    json += "\":";
    put();
    json += '}';
  }
};

struct PutPlain {
  std::string& json;
  void operator()(bool value) const { json += value ? "true" : "false"; }
  template <class T>
  void operator()(const std::vector<T>& items) const {
    put_list(json, items, put_decimal);
  }
  template <class T>
  void operator()(const T& value) const {
    put_item(json, value, put_decimal);
  }
};

void put_member(std::string& json, std::string_view name) {
  if (json.back() != '{') json += ',';
  put_text(json, name);
  json += ':';
}

void put_number(std::string& json, std::string_view name, std::uint64_t value) {
  put_member(json, name);
  json += std::to_string(value);
}

void put_role(std::string& json, const Attributes& attributes, std::string_view word, Role role) {
  put_member(json, word);
  json += '{';
  for (const auto& [name, attribute] : attributes) {
    // Values that decide come apart from records: readers need not know the names to compare two states.
    if (attribute.role != role) continue;
    put_member(json, name);
    std::visit(PutTyped{json}, attribute.value);
  }
  json += '}';
}

}  // namespace

std::string attributes_json(const Attributes& attributes) {
  std::string json = "{";
  put_role(json, attributes, "decides", Role::decides);
  put_role(json, attributes, "record", Role::record);
  return json + '}';
}

std::string meta_json(const Attributes& attributes) {
  std::string json = "{";
  for (const auto& [name, attribute] : attributes) {
    put_member(json, name);
    // /meta/json is for people and foreign tools, so its floats are decimal.
    std::visit(PutPlain{json}, attribute.value);
  }
  return json + '}';
}

// make_file_plan() sizes the user block with this function, fed with the longest values. So no real value may
// take more bytes here than those.
std::string index_json(const CheckpointIndex& index) {
  std::string json = "{";
  put_number(json, "attribute_capacity", index.attribute_capacity);
  put_member(json, "step");
  json += std::to_string(index.step);
  put_member(json, "tensors");
  json += '[';
  for (const IndexedTensor& tensor : index.tensors) {
    json += json.back() == '[' ? "{" : ",{";
    put_member(json, "name");
    put_text(json, tensor.spec.name);
    put_member(json, "dtype");
    put_text(json, name_of(tensor.spec.dtype));
    put_member(json, "shape");
    // A shape has no floats, so how they are written does not matter.
    put_list(json, tensor.spec.shape, put_bits);
    put_number(json, "offset", tensor.offset);
    put_number(json, "length", tensor.spec.bytes());
    put_member(json, "digest");
    put_text(json, to_hex(tensor.digest));
    json += '}';
  }
  json += ']';
  put_member(json, "stretches");
  json += '[';
  for (const CheckpointIndex::Stretch& stretch : index.stretches) {
    json += json.back() == '[' ? "{" : ",{";
    put_number(json, "offset", stretch.offset);
    put_number(json, "length", stretch.length);
    put_member(json, "digest");
    put_text(json, to_hex(stretch.digest));
    json += '}';
  }
  json += ']';
  put_member(json, "attributes");
  json += attributes_json(index.attributes);
  return json + '}';
}

}}}  // namespace holdfast::v0_2::internal
