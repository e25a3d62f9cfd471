#include "holdfast/format/seal.h"

#include <algorithm>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/format/internal/hdf5/root_attributes.h"
#include "holdfast/format/internal/header.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/internal/little_endian.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::put_little_endian;

[[noreturn]] void outgrown(std::uint64_t needed, std::uint64_t capacity) {
  throw RefusedError("the attributes take " + format_bytes(needed) + " and the file was planned for " +
                     format_bytes(capacity) + ": it needs a new plan");
}

bool contains(const MetadataStretch& stretch, std::uint64_t offset) {
  return offset >= stretch.offset && offset - stretch.offset < stretch.bytes.size();
}

// Where seal() writes beside header and index.
std::vector<ByteRange> filled_in(const FilePlan& plan) {
  std::vector<ByteRange> ranges = plan.root.blocks;
  ranges.push_back({plan.step_offset, plan.step_offset + sizeof(std::int64_t)});
  ranges.push_back({plan.json_offset, plan.json_offset + plan.attribute_capacity});
  return ranges;
}

void fill_meta(std::span<std::byte> image, const FilePlan& plan, std::int64_t step, const std::string& json) {
  put_little_endian(image, plan.step_offset, static_cast<std::uint64_t>(step));
  const auto text = image.subspan(plan.json_offset, plan.attribute_capacity);
  std::memcpy(text.data(), json.data(), json.size());
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(json.size()), text.end(), std::byte{0});
}

// Uses the plan's bytes, not the image's, so that a stray write into the image shows as damage.
Digest digest_as_filled_in(const MetadataStretch& stretch, const std::vector<ByteRange>& ranges,
                           std::span<const std::byte> image) {
  std::vector<std::byte> bytes;
  for (const ByteRange& range : ranges) {
    if (!contains(stretch, range.begin)) continue;
    if (bytes.empty()) bytes = stretch.bytes;
    std::memcpy(&bytes[range.begin - stretch.offset], &image[range.begin], range.size());
  }
  return bytes.empty() ? stretch.digest : tensor_digest(bytes);
}

CheckpointIndex index_of(const Snapshot& snapshot, const FilePlan& plan, std::span<const Digest> digests) {
  CheckpointIndex index;
  index.attribute_capacity = plan.attribute_capacity;
  index.step = snapshot.step;
  index.attributes = snapshot.attributes;
  const std::vector<TensorSpec>& tensors = plan.layout->tensors();
  index.tensors.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    index.tensors.push_back({tensors[i], plan.layout->offset(i), digests[i]});
  }
  const std::span<const std::byte> image = snapshot.arena->bytes();
  const std::vector<ByteRange> ranges = filled_in(plan);
  for (const MetadataStretch& stretch : plan.stretches) {
    index.stretches.push_back(
        {stretch.offset, stretch.bytes.size(), digest_as_filled_in(stretch, ranges, image)});
  }
  return index;
}

}  // namespace

void seal(Snapshot& snapshot, const FilePlan& plan, std::span<const Digest> tensor_digests) {
  // Offsets of another plan would put the values into the middle of a tensor.
  if (snapshot.layout != plan.layout || snapshot.arena->size() != plan.layout->length()) {
    throw Error("a snapshot can be sealed only with the plan that it was staged by");
  }
  if (tensor_digests.size() != plan.layout->tensors().size()) throw Error("seal needs one digest a tensor");
  if (snapshot.step < 0)
    throw Error("a snapshot of step " + std::to_string(snapshot.step) + " cannot be sealed");

  const std::string meta = internal::meta_json(snapshot.attributes);
  // Checked before the image is changed: the caller makes a new plan and stages again.
  if (meta.size() > plan.attribute_capacity) outgrown(meta.size(), plan.attribute_capacity);
  const std::size_t attributes = internal::attributes_json(snapshot.attributes).size();
  if (attributes > plan.attribute_capacity) outgrown(attributes, plan.attribute_capacity);

  const std::span<std::byte> image = snapshot.arena->bytes();
  // In this order, because the index holds digests of what is filled in, and the header holds the index's.
  internal::put_root_attributes(image, plan.root, snapshot);
  fill_meta(image, plan, snapshot.step, meta);
  const std::string index = internal::index_json(index_of(snapshot, plan, tensor_digests));
  const auto block = image.subspan(kIndexOffset, plan.user_block - kIndexOffset);
  // index_bound() made room for the longest index, so this is a defect.
  if (index.size() > block.size()) throw Error("the plan's user block is shorter than its index");
  std::memcpy(block.data(), index.data(), index.size());
  std::fill(block.begin() + static_cast<std::ptrdiff_t>(index.size()), block.end(), std::byte{0});
  internal::write_header(image.first(kHeaderSize), {.file_length = plan.layout->length(),
                                                    .user_block = plan.user_block,
                                                    .index_length = index.size(),
                                                    .index_digest = digest_of(block)});
}

}}  // namespace holdfast::v0_2
