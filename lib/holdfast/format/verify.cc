// Reads and verifies the tensors and stretches that the index names.
#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/placed_read.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::Segment;

std::optional<Rejection> check_size(const File& file, const CheckpointIndex& index) {
  if (file.size() == index.file_length) return std::nullopt;
  return Rejection{Rejection::Kind::damaged, "the file changed its size while it was read"};
}

// A snapshot with the index's attributes. Its image has `length` bytes; without `image` a new one is made.
std::shared_ptr<Snapshot> snapshot_of(const CheckpointIndex& index, std::vector<TensorSpec> specs,
                                      std::vector<std::uint64_t> offsets, std::uint64_t length,
                                      std::shared_ptr<Arena> image = nullptr) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), length);
  snapshot->arena = image ? std::move(image) : std::make_shared<Arena>(length);
  snapshot->attributes = index.attributes;
  snapshot->step = index.step;
  return snapshot;
}

// A snapshot of the whole file.
std::shared_ptr<Snapshot> whole_snapshot_of(const CheckpointIndex& index,
                                            std::shared_ptr<Arena> image = nullptr) {
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  for (const IndexedTensor& tensor : index.tensors) {
    specs.push_back(tensor.spec);
    offsets.push_back(tensor.offset);
  }
  return snapshot_of(index, std::move(specs), std::move(offsets), index.file_length, std::move(image));
}

// The image up to a whole block; an arena has space for that.
std::span<std::byte> padded(Arena& arena) { return {arena.bytes().data(), arena.capacity()}; }

}  // namespace

std::optional<Rejection> verify_bytes(const File& file, const CheckpointIndex& index, ReadMode mode,
                                      int threads, std::atomic<std::uint64_t>* progress) {
  // A file that changes under the reader is damage and no error of the system.
  if (auto rejection = check_size(file, index)) return rejection;
  const auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;
  return internal::check_segments(file, index, std::get<std::vector<Segment>>(tiled), mode, threads,
                                  progress);
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_snapshot(const File& file,
                                                                 const CheckpointIndex& index, int threads,
                                                                 ReadMode mode, const MakeArena& make) {
  if (auto rejection = check_size(file, index)) return *rejection;
  const auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;

  auto snapshot = whole_snapshot_of(index, make ? make(index.file_length) : nullptr);
  const std::span<std::byte> image = padded(*snapshot->arena);
  // One extent: the whole file is read in order, and the user block was read with the index.
  const std::vector<internal::Extent> extents{{index.user_block, image.size(), index.user_block}};
  if (auto rejection = internal::read_segments(file, index, std::get<std::vector<Segment>>(tiled), extents,
                                               image, mode, threads)) {
    return *rejection;
  }
  // The device fills the last block completely, but bytes after the image's end must be zero.
  const auto beyond = image.subspan(index.file_length);
  std::fill(beyond.begin(), beyond.end(), std::byte{0});
  // The memory may have held another image.
  std::fill_n(image.begin(), index.user_block, std::byte{0});
  return snapshot;
}

std::shared_ptr<Snapshot> snapshot_in(std::shared_ptr<Arena> image, const CheckpointIndex& index) {
  if (image->size() != index.file_length) throw Error("an image of another length than its index says");
  // As read_snapshot() leaves the user block, so that both ways give equal images.
  const auto user_block = image->bytes().first(index.user_block);
  std::fill(user_block.begin(), user_block.end(), std::byte{0});
  return whole_snapshot_of(index, std::move(image));
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_tensors(const File& file,
                                                                const CheckpointIndex& index,
                                                                const TensorFilter& wanted, int threads,
                                                                ReadMode mode) {
  if (auto rejection = check_size(file, index)) return *rejection;
  auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;
  std::vector<char> kept;
  kept.reserve(index.tensors.size());
  for (const IndexedTensor& tensor : index.tensors) kept.push_back(wanted(tensor.spec));
  auto& segments = std::get<std::vector<Segment>>(tiled);
  // Stretches of HDF5 metadata are skipped too: a reader of some tensors has no use for them.
  std::erase_if(segments, [&](const Segment& segment) {
    return segment.tensor < 0 || kept[static_cast<std::size_t>(segment.tensor)] == 0;
  });

  const std::vector<internal::Extent> extents = internal::extents_of(segments);
  const std::uint64_t length =
      extents.empty() ? 0 : extents.back().image + (extents.back().end - extents.back().begin);
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    if (kept[i] == 0) continue;
    const IndexedTensor& tensor = index.tensors[i];
    specs.push_back(tensor.spec);
    offsets.push_back(tensor.spec.bytes() == 0 ? 0 : internal::place_of(extents, tensor.offset));
  }
  auto snapshot = snapshot_of(index, std::move(specs), std::move(offsets), length);
  if (auto rejection =
          internal::read_segments(file, index, segments, extents, padded(*snapshot->arena), mode, threads)) {
    return *rejection;
  }
  return snapshot;
}

}}  // namespace holdfast::v0_2
