#include "sealed_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/layout.h"

namespace holdfast::test {
namespace {

using internal::get_little_endian;

bool has_user_block(std::span<const std::byte> file, const internal::Header& header) {
  return header.user_block >= kIndexOffset && header.user_block <= file.size();
}

std::optional<Digest> digest_within(std::span<const std::byte> file, std::uint64_t offset,
                                    std::uint64_t length) {
  if (offset > file.size() || length > file.size() - offset) return std::nullopt;
  return tensor_digest(file.subspan(offset, length));
}

}  // namespace

std::vector<std::byte> sealed_file(std::string_view index, std::span<const std::byte> body) {
  const std::uint64_t user_block = std::max(kMinUserBlock, std::bit_ceil(kIndexOffset + index.size()));
  std::vector<std::byte> file(user_block + body.size());
  std::copy(body.begin(), body.end(), file.begin() + static_cast<std::ptrdiff_t>(user_block));
  set_header(file,
             {.file_length = file.size(), .user_block = user_block, .index_length = 0, .index_digest = {}});
  set_index_text(file, index);
  return file;
}

std::vector<std::byte> sealed_file(std::string_view index) {
  return sealed_file(
      index, std::vector<std::byte>(std::max(kMinUserBlock, std::bit_ceil(kIndexOffset + index.size()))));
}

internal::Header header_of(std::span<const std::byte> file) {
  return {.format_version = get_little_endian<std::uint32_t>(file, kFormatVersionAt),
          .lowest_reader = get_little_endian<std::uint32_t>(file, kLowestReaderAt),
          .file_length = get_little_endian<std::uint64_t>(file, kFileLengthAt),
          .user_block = get_little_endian<std::uint64_t>(file, kUserBlockAt),
          .index_length = get_little_endian<std::uint64_t>(file, kIndexLengthAt),
          .index_digest = {}};
}

void set_header(std::vector<std::byte>& file, internal::Header header) {
  if (has_user_block(file, header)) {
    header.index_digest =
        digest_of(std::span<const std::byte>(file).subspan(kIndexOffset, header.user_block - kIndexOffset));
  }
  internal::write_header(file, header);
}

std::optional<std::string> index_text(std::span<const std::byte> file) {
  if (file.size() < kHeaderSize) return std::nullopt;
  const internal::Header header = header_of(file);
  if (!has_user_block(file, header) || header.index_length > header.user_block - kIndexOffset)
    return std::nullopt;
  return std::string(reinterpret_cast<const char*>(file.data() + kIndexOffset), header.index_length);
}

bool set_index_text(std::vector<std::byte>& file, std::string_view text) {
  if (file.size() < kHeaderSize) return false;
  internal::Header header = header_of(file);
  if (!has_user_block(file, header) || text.size() > header.user_block - kIndexOffset) return false;
  std::fill(file.begin() + kIndexOffset, file.begin() + static_cast<std::ptrdiff_t>(header.user_block),
            std::byte{0});
  if (!text.empty()) std::memcpy(file.data() + kIndexOffset, text.data(), text.size());
  header.index_length = text.size();
  set_header(file, header);
  return true;
}

void set_digests(CheckpointIndex& index, std::span<const std::byte> file) {
  for (IndexedTensor& tensor : index.tensors) {
    const std::uint64_t bytes = tensor.spec.bytes();
    if (const auto digest = digest_within(file, bytes == 0 ? 0 : tensor.offset, bytes))
      tensor.digest = *digest;
  }
  for (CheckpointIndex::Stretch& stretch : index.stretches) {
    if (const auto digest = digest_within(file, stretch.offset, stretch.length)) stretch.digest = *digest;
  }
}

}  // namespace holdfast::test
