#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <tuple>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/safetensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

enum class Level { outside, top, metadata, tensor, shape, offsets };

constexpr std::string_view kMembers[] = {"dtype", "shape", "data_offsets"};

struct Parsed {
  TensorSpec spec;
  std::array<std::uint64_t, 2> at{};  // begin and end
  const ByteType* type = nullptr;
};

// nlohmann's SAX parser calls these; `false` ends the parsing with reason(). Only the index's content is
// kept, so the text's size bounds the memory.
class HeaderHandler {
 public:
  std::vector<Parsed> tensors;
  std::map<std::string, std::string> metadata;

  const std::string& reason() const { return reason_; }

  bool null() { return fail("a null"); }
  bool boolean(bool) { return fail("a truth value"); }
  // Demanded by nlohmann's interface; JSON has no binary data.
  bool binary(std::vector<std::uint8_t>&) { return fail("binary data"); }
  // nlohmann calls this for negative numbers alone.
  bool number_integer(std::int64_t) { return fail("a negative number"); }
  bool number_float(double, const std::string& text) { return fail("the number " + printable(text, 40)); }

  bool number_unsigned(std::uint64_t value) {
    if (place_ == Level::offsets) {
      // Counted, because a third number would write past the pair.
      if (numbers_ == tensor_.at.size()) return fail("a third number");
      tensor_.at[numbers_++] = value;
      return true;
    }
    if (place_ != Level::shape) return fail("a number");
    if (tensor_.spec.shape.size() == kMaxRank) return fail("a 33rd dimension");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return fail("the dimension " + std::to_string(value));
    tensor_.spec.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& text) {
    if (place_ == Level::metadata) {
      if (!metadata.emplace(key_, std::move(text)).second) return twice(key_);
      return true;
    }
    if (place_ != Level::tensor || member_ != "dtype") return fail("a text");
    const auto dtype = safetensors_dtype(text);
    tensor_.type = byte_type_of_safetensors(text);
    if (!dtype && tensor_.type == nullptr) {
      return refuse(named() + "elements of type '" + printable(text, 40) + "' cannot be read");
    }
    tensor_.spec.dtype = dtype.value_or(DType::uint8);
    return true;
  }

  bool start_object(std::size_t) {
    if (place_ == Level::outside) return enter(Level::top);
    if (place_ != Level::top) return fail("an object");
    if (key_ == kSafetensorsMetadata) {
      if (std::exchange(metadata_seen_, true)) return twice(key_);
      return enter(Level::metadata);
    }
    tensor_ = {};
    tensor_.spec.name = key_;
    seen_ = 0;
    return enter(Level::tensor);
  }

  bool start_array(std::size_t) {
    if (place_ == Level::tensor && member_ == "shape") return enter(Level::shape);
    if (place_ != Level::tensor || member_ != "data_offsets") return fail("a list");
    numbers_ = 0;
    return enter(Level::offsets);
  }

  bool key(std::string& text) {
    if (place_ != Level::tensor) {
      key_ = std::move(text);
      return true;
    }
    for (unsigned i = 0; i < std::size(kMembers); ++i) {
      if (text != kMembers[i]) continue;
      member_ = kMembers[i];
      if ((seen_ & 1u << i) != 0) return refuse(named() + "'" + text + "' appears twice");
      seen_ |= 1u << i;
      return true;
    }
    return refuse(named() + "unknown member '" + printable(text, 40) + "'");
  }

  bool end_object() {
    if (place_ != Level::tensor) return enter(place_ == Level::metadata ? Level::top : Level::outside);
    for (unsigned i = 0; i < std::size(kMembers); ++i) {
      if ((seen_ & 1u << i) == 0) return refuse(named() + "'" + std::string(kMembers[i]) + "' is missing");
    }
    if (tensor_.type != nullptr && !count_bytes(tensor_.spec.shape, tensor_.type->in_a_byte)) {
      return refuse(named() + "its last dimension fills no whole bytes");
    }
    tensors.push_back(std::move(tensor_));
    return enter(Level::top);
  }

  bool end_array() {
    if (place_ == Level::offsets && numbers_ != tensor_.at.size())
      return refuse(named() + "its offsets are not two numbers");
    return enter(Level::tensor);
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return refuse("not JSON at byte " + std::to_string(position));
  }

 private:
  bool enter(Level place) {
    place_ = place;
    return true;
  }
  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  // Several elements lie in a byte, along the last dimension.
  static bool count_bytes(std::vector<std::int64_t>& shape, std::int64_t in_a_byte) {
    if (in_a_byte == 1) return true;
    if (shape.empty() || shape.back() % in_a_byte != 0) return false;
    shape.back() /= in_a_byte;
    return true;
  }
  bool fail(const std::string& what) {
    const bool keyed = place_ != Level::outside;
    return refuse(what + (keyed ? " at '" + printable(key_) + "'" : "") + " where the format allows none");
  }
  bool twice(const std::string& key) { return refuse("'" + printable(key) + "' appears twice"); }
  std::string named() const { return "tensor '" + printable(key_) + "': "; }

  std::string reason_;
  Level place_ = Level::outside;
  std::string key_;          // current key of the header, or of its metadata
  std::string_view member_;  // current member of a tensor
  bool metadata_seen_ = false;
  Parsed tensor_;
  std::size_t numbers_ = 0;  // data_offsets read so far
  unsigned seen_ = 0;        // bit set of the tensor's members
};

// The format's own library accepts equal keys. Two programs could then load two different models from one
// file.
std::optional<std::string> duplicate(const std::vector<Parsed>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const Parsed& tensor : tensors) names.push_back(tensor.spec.name);
  std::sort(names.begin(), names.end());
  const auto found = std::adjacent_find(names.begin(), names.end());
  if (found == names.end()) return std::nullopt;
  return "'" + printable(*found) + "' appears twice";
}

// Why this tensor cannot begin at `covered`, where the one before it ended. nullopt if it can.
std::optional<std::string> misplaced(const Parsed& tensor, std::uint64_t covered, std::uint64_t data_length) {
  const auto [begin, end] = tensor.at;
  if (begin > end) return "ends before it begins";
  if (end > data_length) {
    return "ends at byte " + std::to_string(end) + " of the data, which has " + std::to_string(data_length);
  }
  if (begin < covered) return "overlaps what lies before it";
  if (begin > covered) return "leaves a hole before it";
  const std::uint64_t bytes = tensor.spec.bytes();
  if (end - begin == bytes) return std::nullopt;
  return "has " + std::to_string(end - begin) + " bytes, and its type and shape make " +
         std::to_string(bytes);
}

// Sorts the tensors by their bytes. Returns why they do not tile the data, or nullopt. The format allows no
// hole, so that no file of another kind can hide between the tensors.
std::optional<std::string> tile(std::vector<Parsed>& tensors, std::uint64_t data_length) {
  std::sort(tensors.begin(), tensors.end(), [](const Parsed& a, const Parsed& b) {
    // Empty tensors share their place with a neighbour; the name makes the order complete.
    return std::tie(a.at, a.spec.name) < std::tie(b.at, b.spec.name);
  });
  std::uint64_t covered = 0;
  for (const Parsed& tensor : tensors) {
    if (const auto reason = misplaced(tensor, covered, data_length)) {
      return "tensor '" + printable(tensor.spec.name) + "' " + *reason;
    }
    covered = tensor.at[1];
  }
  if (covered == data_length) return std::nullopt;
  return std::to_string(data_length - covered) + " bytes of data behind the last tensor belong to none";
}

}  // namespace

std::variant<SafetensorsIndex, Rejection> parse_safetensors_header(std::string_view header,
                                                                   std::uint64_t data_length) {
  const auto bad = [](const std::string& reason) {
    return Rejection{Rejection::Kind::damaged, "safetensors header: " + reason};
  };
  if (!header.starts_with('{')) return bad("it does not begin with '{'");
  // The header may be padded with blanks at its end, so that the data is aligned.
  header = header.substr(0, header.find_last_not_of(' ') + 1);
  if (!header.ends_with('}')) return bad("it does not end with '}'");
  // nlohmann takes a NUL for the end of the text and would ignore the rest.
  if (header.find('\0') != std::string_view::npos) return bad("it holds a NUL");
  HeaderHandler handler;
  try {
    if (!nlohmann::json::sax_parse(header.begin(), header.end(), &handler)) return bad(handler.reason());
    if (const auto reason = duplicate(handler.tensors)) return bad(*reason);
    if (const auto reason = tile(handler.tensors, data_length)) return bad(*reason);
  } catch (const Error& error) {  // a size that overflows
    return bad(error.what());
  }
  SafetensorsIndex index;
  index.metadata = std::move(handler.metadata);
  index.data_length = data_length;
  index.tensors.reserve(handler.tensors.size());
  for (Parsed& tensor : handler.tensors) {
    index.tensors.push_back({std::move(tensor.spec), tensor.at[0], tensor.type});
  }
  return index;
}

}}  // namespace holdfast::v0_2
