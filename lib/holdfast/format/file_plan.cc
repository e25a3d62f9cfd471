#include "holdfast/format/file_plan.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/hdf5/hdf5_layout.h"
#include "holdfast/format/internal/hdf5/root_attributes.h"
#include "holdfast/format/internal/hdf5/scratch_file.h"
#include "holdfast/format/internal/index_json.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::Hdf5Layout;
using internal::ScratchFile;

// At most a 64th of a small state goes to attributes; a large one has the default capacity anyway.
constexpr std::uint64_t kStateBytesPerAttributeByte = 64;
constexpr std::uint64_t kAttributeBytesPerTensor = 256;
constexpr std::uint64_t kRoomToGrow = 4 << 10;

// Upper bound of the index without attributes: every number at its longest, and a stretch before, between and
// after all tensors. So the user block never has to grow when a file is sealed.
std::uint64_t index_bound(std::span<const TensorSpec> tensors) {
  // Sized with real JSON, so that no formula can get out of step with the writer of the index.
  constexpr std::uint64_t kLongest = std::numeric_limits<std::uint64_t>::max();
  CheckpointIndex index;
  index.attribute_capacity = kLongest;
  index.step = std::numeric_limits<std::int64_t>::min();
  for (const TensorSpec& tensor : tensors) index.tensors.push_back({tensor, kLongest, {}});
  index.stretches.assign(tensors.size() + 1, {kLongest, kLongest, {}});
  return internal::index_json(index).size();
}

std::uint64_t user_block_for(std::span<const TensorSpec> tensors, std::uint64_t attribute_capacity) {
  // A power of two, because libhdf5 accepts no other user block.
  const std::uint64_t block =
      std::max(kMinUserBlock, std::bit_ceil(kIndexOffset + index_bound(tensors) + attribute_capacity));
  if (block > kMaxUserBlock) {
    throw RefusedError(std::to_string(tensors.size()) + " tensors need an index of " + format_bytes(block) +
                       ", more than the format allows (" + format_bytes(kMaxUserBlock) + ")");
  }
  return block;
}

std::vector<MetadataStretch> stretches_between(const ScratchFile& file, std::span<const TensorSpec> tensors,
                                               const Hdf5Layout& layout, std::uint64_t user_block,
                                               std::uint64_t length) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // An empty tensor has no place, and libhdf5 reports a meaningless one.
    if (tensors[i].bytes() != 0) taken.emplace_back(layout.offsets[i], tensors[i].bytes());
  }
  // A last entry without bytes makes the loop close the stretch behind all tensors.
  taken.emplace_back(length, 0);
  std::sort(taken.begin(), taken.end());

  std::vector<MetadataStretch> stretches;
  std::uint64_t covered = user_block;
  for (const auto& [offset, bytes] : taken) {
    // A defect of libhdf5, or of its settings, must show before a checkpoint has this layout.
    if (offset < covered || offset > length || bytes > length - offset) {
      throw Error("libhdf5 laid two tensors over each other at byte " + std::to_string(offset));
    }
    if (offset > covered) {
      MetadataStretch stretch{covered, std::vector<std::byte>(offset - covered), {}};
      file.read(stretch.bytes, covered);
      stretch.digest = tensor_digest(stretch.bytes);
      stretches.push_back(std::move(stretch));
    }
    covered = offset + bytes;
  }
  return stretches;
}

// The root group lies before all tensors.
RootAttributes root_attributes(const std::vector<MetadataStretch>& stretches, std::uint64_t user_block) {
  if (stretches.empty() || stretches[0].offset != user_block) throw Error("libhdf5 wrote no root group");
  return internal::find_root_attributes(stretches[0].bytes, user_block);
}

// More than libhdf5's own bytes need. It writes no tensor, so the rest of the file is a hole.
std::uint64_t room_for(std::span<const TensorSpec> tensors) {
  std::uint64_t room = 4 << 20;
  for (const TensorSpec& tensor : tensors) room += 4096 + 4 * tensor.name.size();
  return room;
}

// libhdf5 used about 10 KiB a tensor, which is free now. Without this the allocator would keep it beside the
// image.
void give_memory_back() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace

std::uint64_t attribute_bytes(const Attributes& attributes) {
  // Both forms of the attributes must fit: the index has the bits, and /meta the decimals.
  const std::uint64_t needed =
      std::max(internal::attributes_json(attributes).size(), internal::meta_json(attributes).size());
  if (needed > kMaxAttributeCapacity) {
    throw RefusedError("the attributes take " + format_bytes(needed) + ", more than a checkpoint can hold (" +
                       format_bytes(kMaxAttributeCapacity) + "): store large values as tensors");
  }
  return needed;
}

std::uint64_t usual_attribute_capacity(std::span<const TensorSpec> tensors) {
  std::uint64_t wanted = kAttributeBytesPerTensor * tensors.size();
  for (const TensorSpec& tensor : tensors) {
    wanted = std::min(wanted + tensor.bytes() / kStateBytesPerAttributeByte, kDefaultAttributeCapacity);
  }
  return std::clamp(std::bit_ceil(wanted), kSmallAttributeCapacity, kDefaultAttributeCapacity);
}

std::uint64_t attribute_capacity_for(const Attributes& attributes, std::span<const TensorSpec> tensors) {
  // Room to grow, so that a longer loss history or host name does not cost a new plan at once.
  const std::uint64_t with_room = std::bit_ceil(attribute_bytes(attributes) + kRoomToGrow);
  return std::clamp(with_room, usual_attribute_capacity(tensors), kMaxAttributeCapacity);
}

void check_file_plan(std::span<const TensorSpec> tensors, std::uint64_t attribute_capacity) {
  if (attribute_capacity < kMinAttributeCapacity || attribute_capacity > kMaxAttributeCapacity) {
    throw RefusedError("an attribute capacity of " + std::to_string(attribute_capacity) +
                       " bytes: it must be from " + std::to_string(kMinAttributeCapacity) + " to " +
                       std::to_string(kMaxAttributeCapacity));
  }
  check_tensor_specs(tensors);
  std::uint64_t total = 0;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.shape.size() > kMaxRank) {
      throw RefusedError("tensor '" + printable(tensor.name) + "' has more than " + std::to_string(kMaxRank) +
                         " dimensions, which HDF5 cannot store");
    }
    if (tensor.name.starts_with(std::string(kMetaGroup) + "/")) {
      throw RefusedError("tensor '" + printable(tensor.name) +
                         "': the group 'meta' is the file format's own");
    }
    // Keeps sums of offsets and lengths within 64 bits.
    constexpr std::uint64_t kMost = std::uint64_t{1} << 62;
    total += tensor.bytes();
    if (total > kMost) throw RefusedError("the tensors together have more than 2^62 bytes");
  }
}

std::shared_ptr<const FilePlan> make_file_plan(std::vector<TensorSpec> tensors,
                                               std::uint64_t attribute_capacity) {
  check_file_plan(tensors, attribute_capacity);
  auto plan = std::make_shared<FilePlan>();
  plan->attribute_capacity = attribute_capacity;
  plan->user_block = user_block_for(tensors, attribute_capacity);

  // libhdf5 writes a real file, but its tensors stay holes, so a plan costs no space.
  ScratchFile file(room_for(tensors));
  Hdf5Layout layout = internal::lay_out_hdf5(file, tensors, attribute_capacity, plan->user_block);
  const std::uint64_t length = file.size();
  plan->step_offset = layout.step_offset;
  plan->json_offset = layout.json_offset;
  plan->stretches = stretches_between(file, tensors, layout, plan->user_block, length);
  plan->root = root_attributes(plan->stretches, plan->user_block);
  // The head ends with the last byte that sealing fills in; everything after it can be written earlier.
  std::uint64_t meta_end =
      std::max(plan->step_offset + sizeof(std::int64_t), plan->json_offset + attribute_capacity);
  for (const ByteRange& block : plan->root.blocks) meta_end = std::max(meta_end, block.end);
  // Whole blocks, because O_DIRECT writes no less, and no block may hold bytes of the head and of the body.
  plan->head = (meta_end + kBlockSize - 1) / kBlockSize * kBlockSize;
  plan->layout = std::make_shared<ImageLayout>(std::move(tensors), std::move(layout.offsets), length);
  give_memory_back();
  return plan;
}

// The lock of lay_out_hdf5() protects the library's calls from each other, but not from libhdf5 calls that
// the user's program makes on another thread.
bool plans_beside_others() { return internal::hdf5_has_a_lock(); }

std::shared_ptr<Arena> make_image(const FilePlan& plan) {
  auto arena = std::make_shared<Arena>(plan.layout->length());
  put_stretches(plan, *arena);
  return arena;
}

void put_stretches(const FilePlan& plan, Arena& arena) {
  if (arena.size() != plan.layout->length()) throw Error("an image of another length than its plan says");
  for (const MetadataStretch& stretch : plan.stretches) {
    std::memcpy(arena.bytes().data() + stretch.offset, stretch.bytes.data(), stretch.bytes.size());
  }
}

}}  // namespace holdfast::v0_2
