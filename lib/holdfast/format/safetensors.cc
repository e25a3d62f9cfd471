#include "holdfast/format/safetensors.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/foreign_snapshot.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::damaged;

Rejection became_shorter() { return damaged("the file became shorter while it was read"); }

struct Piece {
  std::uint64_t from;  // in the file
  std::span<std::byte> to;
};

std::vector<Piece> pieces_of(const SafetensorsIndex& index, const ImageLayout& layout,
                             std::span<std::byte> image) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const std::span<std::byte> slot = layout.slot(i, image);
    for (std::uint64_t done = 0; done < slot.size(); done += kTransferBlock) {
      pieces.push_back({index.data_begin + index.tensors[i].offset + done,
                        slot.subspan(done, std::min<std::uint64_t>(slot.size() - done, kTransferBlock))});
    }
  }
  return pieces;
}

bool read_all(const File& file, const std::vector<Piece>& pieces, int threads) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> short_read{false};
  internal::run_workers(internal::threads_for(threads, pieces.size()), [&](const internal::Stopped& stopped) {
    for (std::size_t i = next++; i < pieces.size() && !stopped && !short_read; i = next++) {
      if (file.read_at(pieces[i].to, pieces[i].from) < pieces[i].to.size()) short_read = true;
    }
  });
  return !short_read;
}

// By growing alignment, in the order of the safetensors crate: its writer sorts tensors by it.
// complex128 is missing, because the format has no such type.
constexpr std::pair<DType, std::string_view> kDTypeNames[] = {
    {DType::boolean, "BOOL"},
    {DType::uint8, "U8"},
    {DType::int8, "I8"},
    {DType::float8_e5m2, "F8_E5M2"},
    {DType::float8_e4m3fn, "F8_E4M3"},
    {DType::int16, "I16"},
    {DType::uint16, "U16"},
    {DType::float16, "F16"},
    {DType::bfloat16, "BF16"},
    {DType::int32, "I32"},
    {DType::uint32, "U32"},
    {DType::float32, "F32"},
    {DType::complex64, "C64"},
    {DType::float64, "F64"},
    {DType::int64, "I64"},
    {DType::uint64, "U64"},
};

}  // namespace

std::string_view safetensors_name(DType dtype) {
  for (const auto& [known, name] : kDTypeNames) {
    if (known == dtype) return name;
  }
  return {};
}

std::optional<DType> safetensors_dtype(std::string_view name) {
  for (const auto& [dtype, known] : kDTypeNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

int safetensors_rank(DType dtype) {
  const auto* const found = std::find_if(std::begin(kDTypeNames), std::end(kDTypeNames),
                                         [&](const auto& entry) { return entry.first == dtype; });
  return static_cast<int>(found - std::begin(kDTypeNames));
}

bool looks_like_safetensors(const File& file) {
  std::array<std::byte, kSafetensorsLengthSize + 1> start{};
  // The first bytes are the header's length; "{" follows. A length without limit would match random files.
  return file.read_at(start, 0) == start.size() &&
         internal::get_little_endian<std::uint64_t>(start, 0) <= kMaxSafetensorsHeader &&
         start.back() == std::byte{'{'};
}

std::variant<SafetensorsIndex, Rejection> read_safetensors_index(const File& file) {
  const std::uint64_t size = file.size();
  if (size < kSafetensorsLengthSize)
    return damaged("the file has " + std::to_string(size) + " bytes, fewer than a header");
  std::array<std::byte, kSafetensorsLengthSize> start;
  if (file.read_at(start, 0) < start.size()) return became_shorter();
  const auto length = internal::get_little_endian<std::uint64_t>(start, 0);
  if (length > kMaxSafetensorsHeader) {
    return damaged("safetensors header: " + std::to_string(length) +
                   " bytes are more than the format allows");
  }
  if (length > size - kSafetensorsLengthSize) {
    return damaged("safetensors header: it would have " + std::to_string(length) +
                   " bytes, and the file has " + std::to_string(size));
  }
  Arena header(length);
  if (file.read_at(header.bytes(), kSafetensorsLengthSize) < length) return became_shorter();
  // What is left behind the header must be covered by tensors exactly.
  auto parsed = parse_safetensors_header({reinterpret_cast<const char*>(header.bytes().data()), length},
                                         size - kSafetensorsLengthSize - length);
  if (auto* const index = std::get_if<SafetensorsIndex>(&parsed))
    index->data_begin = kSafetensorsLengthSize + length;
  return parsed;
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_safetensors(const File& file,
                                                                    const SafetensorsIndex& index,
                                                                    std::string_view group, int threads) {
  if (file.size() != index.data_begin + index.data_length) {
    return damaged("the file changed its size while it was read");
  }
  auto made = internal::foreign_snapshot(index.tensors, group);
  auto* const snapshot = std::get_if<std::shared_ptr<Snapshot>>(&made);
  if (snapshot == nullptr) return made;
  if (!read_all(file, pieces_of(index, *(*snapshot)->layout, (*snapshot)->arena->bytes()), threads)) {
    return became_shorter();
  }
  if (auto rejection = internal::check_booleans(**snapshot)) return std::move(*rejection);
  return made;
}

}}  // namespace holdfast::v0_2
