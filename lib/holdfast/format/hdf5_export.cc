#include "holdfast/format/hdf5_export.h"

#include <algorithm>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/format/internal/hdf5/root_attributes.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/tensor_copy.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// HDF5's superblock, version 2 (HDF5 File Format Specification 3.0, II.B). Other addresses are relative to
// its base address, so they stay.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kBaseAddressAt = 12;
constexpr std::size_t kEndAddressAt = 28;
constexpr std::size_t kChecksumAt = 44;

void move_superblock(std::span<std::byte> superblock, std::uint64_t user_block, std::uint64_t length) {
  // The places below are those of this version of the superblock alone.
  if (superblock.size() < kChecksumAt + 4 || superblock[kVersionAt] != std::byte{2} ||
      internal::get_little_endian<std::uint64_t>(superblock, kBaseAddressAt) != user_block) {
    throw Error("libhdf5 wrote another superblock than Holdfast knows");
  }
  // Without a user block the file begins with its superblock, where every HDF5 tool looks first.
  internal::put_little_endian(superblock, kBaseAddressAt, std::uint64_t{0});
  internal::put_little_endian(superblock, kEndAddressAt, length);
  internal::put_little_endian(superblock, kChecksumAt, internal::lookup3(superblock.first(kChecksumAt)));
}

// libhdf5's own bytes between the tensors, with the values of /meta and the root group's attributes.
class Stretches {
 public:
  // A copy of the plan's bytes: the plan itself is shared and never changes.
  Stretches(const FilePlan& plan, const CheckpointIndex& index) : plan_(plan), stretches_(plan.stretches) {
    const std::string json = internal::meta_json(index.attributes);
    if (json.size() > plan.attribute_capacity) no_place();
    std::memcpy(at(plan.json_offset, plan.attribute_capacity).data(), json.data(), json.size());
    internal::put_little_endian(at(plan.step_offset, sizeof index.step), 0,
                                static_cast<std::uint64_t>(index.step));
    // The root group lies in the first stretch.
    Snapshot values;
    values.attributes = index.attributes;
    values.step = index.step;
    RootAttributes places = plan.root;
    // The plan counts from the checkpoint's start, and the exported file begins at the user block's end.
    for (std::uint64_t* const place : {&places.step, &places.run, &places.version}) *place -= plan.user_block;
    for (ByteRange& block : places.blocks)
      block = {block.begin - plan.user_block, block.end - plan.user_block};
    internal::put_root_attributes(stretches_.at(0).bytes, places, values);
    move_superblock(stretches_[0].bytes, plan.user_block, plan.layout->length() - plan.user_block);
  }

  void write(File& to) const {
    for (const MetadataStretch& stretch : stretches_) {
      to.write_at(stretch.bytes, stretch.offset - plan_.user_block);
    }
  }

 private:
  [[noreturn]] static void no_place() {
    throw Error("the plan of an HDF5 file has no place for its attributes");
  }
  std::span<std::byte> at(std::uint64_t offset, std::uint64_t size) {
    for (MetadataStretch& stretch : stretches_) {
      if (offset < stretch.offset || offset - stretch.offset >= stretch.bytes.size()) continue;
      const auto rest = std::span(stretch.bytes).subspan(offset - stretch.offset);
      if (rest.size() >= size) return rest.first(size);
    }
    no_place();
  }

  const FilePlan& plan_;
  std::vector<MetadataStretch> stretches_;
};

}  // namespace

std::optional<Rejection> export_hdf5(const File& from, const CheckpointIndex& index,
                                     const std::vector<ExportedTensor>& tensors, std::string_view group,
                                     File& to, ReadMode mode, std::optional<DType> as) {
  std::vector<TensorSpec> specs;
  for (const ExportedTensor& tensor : tensors) {
    specs.push_back(index.tensors.at(tensor.tensor).spec);
    specs.back().name = group.empty() ? tensor.key : std::string(group) + "/" + tensor.key;
    specs.back().dtype = internal::exported_dtype(specs.back().dtype, as);
  }
  mode = internal::resolved(mode, from.size());
  const auto plan =
      make_file_plan(specs, std::max(kMinAttributeCapacity, attribute_capacity_for(index.attributes, specs)));
  // Shows a full disk before the first byte.
  to.reserve(plan->layout->length() - plan->user_block);
  Stretches(*plan, index).write(to);
  Arena buffer(kTransferBlock);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::uint64_t at = plan->layout->offset(i) - plan->user_block;
    std::uint64_t filled = 0;
    const auto flush = [&] {
      if (filled != 0) to.write_at(buffer.bytes().first(filled), at);
      at += filled;
    };
    auto rejection =
        internal::copy_tensor(from, index.tensors[tensors[i].tensor], as, mode, [&](std::uint64_t bytes) {
          // The buffer's earlier content is complete when the next part is asked for.
          flush();
          filled = bytes;
          return buffer.bytes().first(bytes);
        });
    if (rejection) return rejection;
    flush();
  }
  return std::nullopt;
}

}}  // namespace holdfast::v0_2
