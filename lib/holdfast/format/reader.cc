#include "holdfast/format/reader.h"

#include <algorithm>
#include <array>

#include "holdfast/format/internal/header.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::damaged;
using internal::read_bytes;

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// True if `known` is the index in `text`, which the header delimits. A header with other bounds, into the
// padding or before the index's end, must go to the parser, which refuses it.
bool of_header(const CheckpointIndex& index, const internal::Header& header, std::string_view text) {
  return !text.empty() && text.back() != '\0' && index.digest == header.index_digest &&
         index.file_length == header.file_length && index.user_block == header.user_block &&
         index.format_version == header.format_version;
}

}  // namespace

std::variant<CheckpointIndex, Rejection> read_index(const File& file, ReadMode mode,
                                                    const CheckpointIndex* known) {
  const std::uint64_t size = file.size();
  mode = internal::resolved(mode, size);
  if (size < kHeaderSize)
    return damaged("the file has " + std::to_string(size) + " bytes, fewer than a header");
  alignas(kBlockSize) std::array<std::byte, kHeaderSize> header_bytes;
  if (read_bytes(file, mode, header_bytes, 0) < kHeaderSize)
    return damaged("the file became shorter while it was read");
  const auto checked = internal::read_header(header_bytes, size);
  if (const auto* const rejection = std::get_if<Rejection>(&checked)) return *rejection;
  const auto& header = std::get<internal::Header>(checked);

  // An arena, because a large model's index has tens of MB, and an arena's failure to allocate has a message.
  Arena block(header.user_block - kIndexOffset);
  // Shorter than the header says: somebody truncates the file just now.
  if (read_bytes(file, mode, block.bytes(), kIndexOffset) < block.size()) {
    return damaged("the file became shorter while it was read");
  }
  const std::span<const std::byte> bytes = block.bytes();
  // The digest covers the padding too, so that every byte of the user block is checked.
  if (digest_of(bytes) != header.index_digest) return damaged("index: digest differs");
  const auto padding = bytes.subspan(header.index_length);
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return damaged("index: its padding is not zero");
  }
  const std::string_view text = as_text(bytes.first(header.index_length));
  // An equal digest means equal content, so a second parsing would change nothing.
  if (known != nullptr && of_header(*known, header, text)) return *known;

  auto parsed = internal::parse_index(text, header.format_version > kFormatVersion);
  if (std::holds_alternative<Rejection>(parsed)) return parsed;
  auto& index = std::get<CheckpointIndex>(parsed);
  index.format_version = header.format_version;
  index.file_length = header.file_length;
  index.user_block = header.user_block;
  index.digest = header.index_digest;
  // Bounds are checked here once, so that no reader of tensors has to.
  auto tiled = internal::tile(index);
  if (auto* const rejection = std::get_if<Rejection>(&tiled)) return std::move(*rejection);
  return parsed;
}

}}  // namespace holdfast::v0_2
