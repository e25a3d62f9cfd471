#include "holdfast/format/safetensors_writer.h"

#include <algorithm>
#include <unordered_set>

#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/safetensors.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kHeaderAlignment = 8;

void check_storable(std::span<const TensorSpec> tensors) {
  std::unordered_set<std::string_view> keys;
  for (const TensorSpec& tensor : tensors) {
    const auto refuse = [&](const std::string& what) {
      throw RefusedError("tensor '" + printable(tensor.name) + "': " + what + " in a safetensors file");
    };
    if (safetensors_name(tensor.dtype).empty()) {
      refuse("elements of type " + std::string(name_of(tensor.dtype)) + " cannot be stored");
    }
    if (tensor.name == kSafetensorsMetadata) refuse("that name means something else");
    if (!is_utf8(tensor.name)) refuse("a name that is not UTF-8 cannot be stored");
    if (!keys.insert(tensor.name).second) refuse("there cannot be two of that name");
  }
}

std::vector<std::size_t> order_of(std::span<const TensorSpec> tensors) {
  std::vector<std::size_t> order(tensors.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    // The largest alignment first, as the reference implementation writes; every tensor is then aligned to
    // its element.
    const int first = safetensors_rank(tensors[a].dtype);
    const int second = safetensors_rank(tensors[b].dtype);
    return first != second ? first > second : tensors[a].name < tensors[b].name;
  });
  return order;
}

std::string metadata_text(const std::map<std::string, std::string>& metadata) {
  std::string text;
  for (const auto& [key, value] : metadata) {
    if (!is_utf8(key) || !is_utf8(value))
      throw RefusedError("metadata '" + printable(key) + "' is not UTF-8");
    text += (text.empty() ? "" : ",") + json_text(key) + ":" + json_text(value);
  }
  return json_text(std::string(kSafetensorsMetadata)) + ":{" + text + "}";
}

// The padded JSON header. Adds the total size of the tensors to `data`.
std::string header_of(std::span<const TensorSpec> tensors, const std::vector<std::size_t>& order,
                      const std::map<std::string, std::string>& metadata,
                      std::span<const ByteType* const> types, std::uint64_t& data) {
  std::string header = "{";
  if (!metadata.empty()) header += metadata_text(metadata);
  for (const std::size_t i : order) {
    const TensorSpec& tensor = tensors[i];
    std::string_view dtype = safetensors_name(tensor.dtype);
    std::vector<std::int64_t> sizes = tensor.shape;
    const ByteType* const type = types.empty() ? nullptr : types[i];
    // A type that the format lacks stays what it is in the checkpoint: bytes.
    if (type != nullptr && !type->safetensors.empty() && (type->in_a_byte == 1 || !sizes.empty())) {
      dtype = type->safetensors;
      if (type->in_a_byte != 1) sizes.back() *= type->in_a_byte;
    }
    std::string shape;
    for (const std::int64_t size : sizes) shape += (shape.empty() ? "" : ",") + std::to_string(size);
    const std::uint64_t end = data + tensor.bytes();
    if (header.size() > 1) header += ',';
    header += json_text(tensor.name) + R"(:{"dtype":")" + std::string(dtype) + R"(","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(data) + "," + std::to_string(end) + "]}";
    data = end;
  }
  header += '}';
  // Blanks after the JSON text align the data to 8 bytes, as the format demands.
  header.append((kHeaderAlignment - header.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  if (header.size() > kMaxSafetensorsHeader) {
    throw RefusedError("a safetensors header holds at most 100 MB, and these " +
                       std::to_string(tensors.size()) + " tensors need more");
  }
  return header;
}

}  // namespace

// Two blocks, because the buffer may hold almost one when next() hands out a whole one.
SafetensorsWriter::SafetensorsWriter(File& file, std::span<const TensorSpec> tensors,
                                     const std::map<std::string, std::string>& metadata,
                                     std::span<const ByteType* const> types)
    : file_(file), order_(order_of(tensors)), buffer_(2 * kTransferBlock) {
  check_storable(tensors);
  std::uint64_t data = 0;
  const std::string header = header_of(tensors, order_, metadata, types, data);
  length_ = kSafetensorsLengthSize + header.size() + data;
  // Shows a full disk before the first byte.
  file_.reserve(length_);
  internal::put_little_endian<std::uint64_t>(buffer_.bytes(), 0, header.size());
  file_.write_at(buffer_.bytes().first(kSafetensorsLengthSize), 0);
  file_.write_at(std::as_bytes(std::span(header)), kSafetensorsLengthSize);
  written_ = kSafetensorsLengthSize + header.size();
}

std::span<std::byte> SafetensorsWriter::next(std::uint64_t bytes) {
  if (bytes > kTransferBlock || bytes > length_ - written_ - filled_) {
    throw Error("a safetensors file was given more bytes than its tensors have");
  }
  // The caller has filled the earlier part of the buffer, so it may be written.
  if (filled_ >= kTransferBlock) flush();
  const auto room = buffer_.bytes().subspan(filled_, bytes);
  filled_ += bytes;
  return room;
}

void SafetensorsWriter::finish() {
  flush();
  if (written_ != length_) throw Error("a safetensors file was ended before its tensors were");
}

void SafetensorsWriter::flush() {
  if (filled_ != 0) file_.write_at(buffer_.bytes().first(filled_), written_);
  written_ += filled_;
  filled_ = 0;
}

}}  // namespace holdfast::v0_2
