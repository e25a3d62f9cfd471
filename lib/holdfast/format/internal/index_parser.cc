#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "holdfast/base/bits.h"
#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The parser's position: the objects and arrays of the grammar.
enum class Place {
  outside,
  top,
  tensors,
  tensor,
  shape,
  stretches,
  stretch,
  attributes,
  role,
  value,
  list,
  skipped
};

constexpr std::string_view kTopKeys[] = {"attribute_capacity", "step", "tensors", "stretches", "attributes"};
constexpr std::string_view kTensorKeys[] = {"name", "dtype", "shape", "offset", "length", "digest"};
constexpr std::string_view kStretchKeys[] = {"offset", "length", "digest"};
constexpr std::string_view kRoleKeys[] = {"decides", "record"};
constexpr std::string_view kTypeKeys[] = {"float", "integers", "floats", "texts"};
constexpr int kDeepestSkipped = 32;

// nlohmann's SAX parser calls these; `false` ends the parsing with reason(). Only the index's content is
// kept, so the text's size bounds the memory.
class IndexHandler {
 public:
  IndexHandler(CheckpointIndex& index, bool newer_minor) : index_(index), newer_minor_(newer_minor) {}

  const std::string& reason() const { return reason_; }

  bool null() { return place_ == Place::skipped ? end_skipped_value() : fail("a null"); }
  // Demanded by nlohmann's interface; JSON has no binary data.
  bool binary(std::vector<std::uint8_t>&) { return fail("binary data"); }
  // The format writes floats as their bits, in texts, so a fraction is foreign wherever it stands.
  bool number_float(double, const std::string& text) {
    return place_ == Place::skipped ? end_skipped_value() : fail("the number " + printable(text, 40));
  }
  // nlohmann calls this for negative numbers alone.
  bool number_integer(std::int64_t value) { return integer(value); }
  bool number_unsigned(std::uint64_t value) {
    // Sizes are unsigned and may need all 64 bits; other numbers must fit a signed one.
    if (const auto to = size_target()) {
      *to = value;
      return true;
    }
    if (place_ == Place::skipped) return end_skipped_value();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("a huge number");
    return integer(static_cast<std::int64_t>(value));
  }

  bool boolean(bool value) {
    if (place_ == Place::skipped) return end_skipped_value();
    if (place_ != Place::role) return fail("a truth value");
    return set_attribute(value);
  }

  bool string(std::string& text) {
    switch (place_) {
      case Place::skipped:
        return end_skipped_value();
      case Place::role:
        return set_attribute(std::move(text));
      case Place::tensor:
        return tensor_text(text);
      case Place::stretch:
        return key_ == "digest" ? digest(text, stretch_.digest) : fail("a text");
      case Place::value:
        return key_ == "float" ? float_bits(text, value_.emplace<double>()) : fail("a text");
      case Place::list:
        return list_text(text);
      default:
        return fail("a text");
    }
  }

  bool start_object(std::size_t) {
    switch (place_) {
      case Place::outside:
        return enter(Place::top);
      case Place::tensors:
        // A missing member must not take the value of the tensor before.
        tensor_ = {};
        length_ = 0;
        return enter(Place::tensor);
      case Place::stretches:
        stretch_ = {};
        return enter(Place::stretch);
      case Place::top:
        return key_ == "attributes" ? enter(Place::attributes) : fail("an object");
      case Place::attributes:
        role_ = key_ == "decides" ? Role::decides : Role::record;
        return enter(Place::role);
      case Place::role:
        attribute_name_ = key_;
        return enter(Place::value);
      case Place::skipped:
        return deeper();
      default:
        return fail("an object");
    }
  }

  bool start_array(std::size_t) {
    if (place_ == Place::skipped) return deeper();
    if (place_ == Place::top && key_ == "tensors") return enter(Place::tensors);
    if (place_ == Place::top && key_ == "stretches") return enter(Place::stretches);
    if (place_ == Place::tensor && key_ == "shape") return enter(Place::shape);
    if (place_ == Place::value && key_ != "float") {
      if (key_ == "integers") value_.emplace<std::vector<std::int64_t>>();
      if (key_ == "floats") value_.emplace<std::vector<double>>();
      if (key_ == "texts") value_.emplace<std::vector<std::string>>();
      return enter(Place::list);
    }
    return fail("a list");
  }

  bool key(std::string& text) {
    key_ = std::move(text);
    switch (place_) {
      case Place::top:
        return known_key(kTopKeys);
      case Place::tensor:
        return known_key(kTensorKeys);
      case Place::stretch:
        return known_key(kStretchKeys);
      case Place::attributes:
        return known_key(kRoleKeys);
      case Place::value:
        return known_key(kTypeKeys);
      case Place::role:
        // A name has one value, whichever role it has.
        return index_.attributes.has(key_) ? refuse("attribute '" + printable(key_) + "' appears twice")
                                           : true;
      default:
        return true;
    }
  }

  bool end_object() {
    switch (place_) {
      case Place::top:
        return complete(kTopKeys) && leave(Place::outside);
      case Place::tensor:
        return complete(kTensorKeys) && end_tensor();
      case Place::stretch:
        if (!complete(kStretchKeys)) return false;
        index_.stretches.push_back(stretch_);
        return leave(Place::stretches);
      case Place::attributes:
        return complete(kRoleKeys) && leave(Place::top);
      case Place::role:
        return leave(Place::attributes);
      case Place::value:
        // Exactly one type: an empty object or two types are not a value.
        if (!std::has_single_bit(seen_[static_cast<std::size_t>(Place::value)]))
          return fail("a value that does not have exactly one type");
        leave(Place::role);
        // key_ still names the type.
        key_ = attribute_name_;
        return set_attribute(std::move(value_));
      default:
        return shallower();
    }
  }

  bool end_array() {
    switch (place_) {
      case Place::tensors:
      case Place::stretches:
        return leave(Place::top);
      case Place::shape:
        return leave(Place::tensor);
      case Place::list:
        return leave(Place::value);
      default:
        return shallower();
    }
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return refuse("not JSON at byte " + std::to_string(position));
  }

 private:
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool fail(const std::string& what) {
    // In a list of objects key_ is left from the object before.
    const bool keyed = place_ != Place::outside && place_ != Place::tensors && place_ != Place::stretches;
    return refuse(what + (keyed ? " at '" + printable(key_) + "'" : "") + " where the format allows none");
  }

  // Each object of a kind starts with no keys seen.
  bool enter(Place place) {
    place_ = place;
    seen_[static_cast<std::size_t>(place)] = 0;
    return true;
  }
  bool leave(Place place) {
    place_ = place;
    return true;
  }
  bool deeper() { return ++skipped_depth_ > kDeepestSkipped ? refuse("nested too deep") : true; }
  bool shallower() {
    --skipped_depth_;
    return end_skipped_value();
  }
  bool end_skipped_value() { return skipped_depth_ == 0 ? leave(Place::top) : true; }

  bool known_key(std::span<const std::string_view> keys) {
    unsigned& seen = seen_[static_cast<std::size_t>(place_)];
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (key_ != keys[i]) continue;
      if ((seen & 1u << i) != 0) return refuse("'" + key_ + "' appears twice");
      seen |= 1u << i;
      return true;
    }
    // A newer minor version may have added members, and those are ignored. Elsewhere the format is closed.
    if (place_ == Place::top && newer_minor_) {
      skipped_depth_ = 0;
      return leave(Place::skipped);
    }
    return refuse("unknown member '" + printable(key_) + "'");
  }
  bool complete(std::span<const std::string_view> keys) {
    const unsigned seen = seen_[static_cast<std::size_t>(place_)];
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if ((seen & 1u << i) == 0) return refuse("'" + std::string(keys[i]) + "' is missing");
    }
    return true;
  }

  // Target of an unsigned 64-bit member; nullptr for other members.
  std::uint64_t* size_target() {
    if (place_ == Place::top && key_ == "attribute_capacity") return &index_.attribute_capacity;
    if (place_ == Place::tensor && key_ == "offset") return &tensor_.offset;
    if (place_ == Place::tensor && key_ == "length") return &length_;
    if (place_ == Place::stretch && key_ == "offset") return &stretch_.offset;
    if (place_ == Place::stretch && key_ == "length") return &stretch_.length;
    return nullptr;
  }

  bool integer(std::int64_t value) {
    if (place_ == Place::skipped) return end_skipped_value();
    if (place_ == Place::role) return set_attribute(value);
    if (auto* const items = std::get_if<std::vector<std::int64_t>>(&value_); place_ == Place::list && items) {
      items->push_back(value);
      return true;
    }
    // From here on the number is a size, an offset or a step: only attributes may be negative.
    if (value < 0) return fail("a negative number");
    if (place_ == Place::shape) {
      if (tensor_.spec.shape.size() == kMaxRank) return refuse("a tensor of more than 32 dimensions");
      tensor_.spec.shape.push_back(value);
      return true;
    }
    if (place_ == Place::top && key_ == "step") {
      index_.step = value;
      return true;
    }
    return fail("a number");
  }

  bool tensor_text(std::string& text) {
    if (key_ == "name") {
      tensor_.spec.name = std::move(text);
      return true;
    }
    if (key_ == "dtype") {
      const auto dtype = dtype_named(text);
      if (!dtype) return refuse("unknown dtype '" + printable(text) + "'");
      tensor_.spec.dtype = *dtype;
      return true;
    }
    return key_ == "digest" ? digest(text, tensor_.digest) : fail("a text");
  }

  bool digest(const std::string& text, Digest& to) {
    const auto digest = digest_from_hex(text);
    if (!digest) return refuse("'" + printable(text, 40) + "' is not a digest");
    to = *digest;
    return true;
  }

  bool float_bits(const std::string& text, double& to) {
    const auto value = double_from_bits_hex(text);
    if (!value) return refuse("'" + printable(text, 40) + "' is not the bits of a float");
    to = *value;
    return true;
  }

  bool list_text(std::string& text) {
    if (auto* const texts = std::get_if<std::vector<std::string>>(&value_)) {
      texts->push_back(std::move(text));
      return true;
    }
    if (auto* const floats = std::get_if<std::vector<double>>(&value_)) {
      return float_bits(text, floats->emplace_back());
    }
    return fail("a text");
  }

  bool end_tensor() {
    // The length is redundant on purpose: it must agree with dtype and shape.
    if (length_ != tensor_.spec.bytes()) {
      return refuse("tensor '" + printable(tensor_.spec.name) + "' has a length that is not its shape's");
    }
    index_.tensors.push_back(std::move(tensor_));
    return leave(Place::tensors);
  }

  bool set_attribute(AttributeValue value) {
    index_.attributes.set(key_, std::move(value), role_);
    return true;
  }

  CheckpointIndex& index_;
  bool newer_minor_;
  std::string reason_;
  Place place_ = Place::outside;
  std::string key_;
  // Bit sets of the keys seen in each kind of object: a second one of a key is damage.
  unsigned seen_[static_cast<std::size_t>(Place::skipped) + 1] = {};
  int skipped_depth_ = 0;
  IndexedTensor tensor_;
  std::uint64_t length_ = 0;
  CheckpointIndex::Stretch stretch_;
  Role role_ = Role::decides;
  std::string attribute_name_;
  AttributeValue value_;
};

std::optional<std::string> check_index(const CheckpointIndex& index) {
  if (index.attribute_capacity < kMinAttributeCapacity || index.attribute_capacity > kMaxAttributeCapacity) {
    return "an attribute capacity of " + std::to_string(index.attribute_capacity) + " bytes cannot be";
  }
  std::vector<TensorSpec> specs;
  specs.reserve(index.tensors.size());
  for (const IndexedTensor& tensor : index.tensors) {
    // /meta belongs to the format, and a tensor there could hide the copy for people.
    if (tensor.spec.name.starts_with("meta/"))
      return "tensor '" + printable(tensor.spec.name) + "' lies in /meta";
    specs.push_back(tensor.spec);
  }
  check_tensor_specs(specs);
  return std::nullopt;
}

}  // namespace

std::variant<CheckpointIndex, Rejection> parse_index(std::string_view json, bool newer_minor) {
  const auto damaged = [](const std::string& reason) {
    return Rejection{Rejection::Kind::damaged, "index: " + reason};
  };
  // nlohmann would skip a byte order mark.
  if (!json.starts_with('{')) return damaged("not a JSON object");
  // nlohmann takes a NUL for the end of the text and would ignore the rest.
  if (json.find('\0') != std::string_view::npos) return damaged("it holds a NUL");
  CheckpointIndex index;
  IndexHandler handler(index, newer_minor);
  try {
    if (!nlohmann::json::sax_parse(json.begin(), json.end(), &handler)) return damaged(handler.reason());
    if (const auto reason = check_index(index)) return damaged(*reason);
  } catch (const Error& error) {
    // check_tensor_specs() throws for names and sizes that no writer makes.
    return damaged(error.what());
  }
  return index;
}

}}}  // namespace holdfast::v0_2::internal
