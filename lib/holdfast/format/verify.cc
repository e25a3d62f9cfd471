// Reading and checking what the index names.
#include "holdfast/base/error.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"

namespace holdfast::inline v1 {
namespace {

using internal::Segment;

std::optional<Rejection> check_size(const File& file, const CheckpointIndex& index) {
  if (file.size() == index.file_length) return std::nullopt;
  return Rejection{Rejection::Kind::damaged, "the file changed its size while it was read"};
}

std::shared_ptr<Snapshot> snapshot_of(const CheckpointIndex& index, std::vector<TensorSpec> specs,
                                      std::vector<std::uint64_t> offsets, std::uint64_t length) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), length);
  snapshot->arena = std::make_shared<Arena>(length);
  snapshot->attributes = index.attributes;
  snapshot->step = index.step;
  return snapshot;
}

}  // namespace

std::optional<Rejection> verify_bytes(const File& file, const CheckpointIndex& index, ReadMode mode,
                                      int threads, std::atomic<std::uint64_t>* progress) {
  if (auto rejection = check_size(file, index)) return rejection;
  const auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;
  return internal::check_segments(file, index, std::get<std::vector<Segment>>(tiled), mode, threads,
                                  progress);
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_snapshot(const File& file,
                                                                 const CheckpointIndex& index, int threads,
                                                                 ReadMode mode) {
  if (auto rejection = check_size(file, index)) return *rejection;
  auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;
  auto& segments = std::get<std::vector<Segment>>(tiled);

  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> offsets;
  for (const IndexedTensor& tensor : index.tensors) {
    specs.push_back(tensor.spec);
    offsets.push_back(tensor.offset);
  }
  auto snapshot = snapshot_of(index, std::move(specs), std::move(offsets), index.file_length);
  for (Segment& segment : segments) segment.destination = snapshot->arena->bytes().data() + segment.offset;
  if (auto rejection = internal::check_segments(file, index, segments, mode, threads)) return *rejection;
  return snapshot;
}

std::variant<std::shared_ptr<Snapshot>, Rejection> read_part(const File& file, const CheckpointIndex& index,
                                                             std::string_view prefix) {
  if (auto rejection = check_size(file, index)) return *rejection;
  auto tiled = internal::tile(index);
  if (const auto* const rejection = std::get_if<Rejection>(&tiled)) return *rejection;
  auto& segments = std::get<std::vector<Segment>>(tiled);
  std::erase_if(segments, [&](const Segment& segment) {
    return segment.tensor < 0 ||
           !index.tensors[static_cast<std::size_t>(segment.tensor)].spec.name.starts_with(prefix);
  });

  // Every tensor keeps its place within a block of 4096, so that whole blocks can come straight from the
  // device.
  std::vector<std::uint64_t> offsets(index.tensors.size(), 0);
  std::uint64_t length = 0;
  for (const Segment& segment : segments) {
    const std::uint64_t shift = (segment.offset + kBlockSize - length % kBlockSize) % kBlockSize;
    offsets[static_cast<std::size_t>(segment.tensor)] = length + shift;
    length += shift + segment.length;
  }
  std::vector<TensorSpec> specs;
  std::vector<std::uint64_t> kept;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    if (!index.tensors[i].spec.name.starts_with(prefix)) continue;
    specs.push_back(index.tensors[i].spec);
    kept.push_back(offsets[i]);
  }
  auto snapshot = snapshot_of(index, std::move(specs), std::move(kept), length);
  for (Segment& segment : segments) {
    segment.destination = snapshot->arena->bytes().data() + offsets[static_cast<std::size_t>(segment.tensor)];
  }
  constexpr int kThreads = 2;
  if (auto rejection = internal::check_segments(file, index, segments, ReadMode::cached, kThreads))
    return *rejection;
  return snapshot;
}

}  // namespace holdfast::inline v1
