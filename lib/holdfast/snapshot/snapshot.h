// A Snapshot: the host-memory image of a TrainState at one step boundary, and the waist of the house. Above
// it nobody knows files, below it nobody knows Torch.
//
// The arena *is* the byte image of the checkpoint file (format/file_plan.h decides where each tensor lies),
// so committing it needs no further copy. Once staged, tensors and attributes never change; only the writer
// fills the file's own head ([0, head) of the image) when it seals the file. With an `arrival` parts of the
// image are still on their way from a device: bytes() and find() require that its wait() has returned.
//
// Threads: after staging, const methods may be called from any thread. Lifetime: shared_ptr, because the
// writer, a waiting `save()` and an evaluation may hold the same one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/arrival.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast::inline v1 {

// Bytes [begin, end) of a file, its image or a tensor.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// Where every tensor lies in the image. A pure function of the tensor list and the attribute capacity.
class ImageLayout {
 public:
  // Throws Error (a defect) unless there is one offset a tensor and every tensor lies within `length`.
  // `wanted`: one range a tensor, within it; empty: all of all.
  ImageLayout(std::vector<TensorSpec> tensors, std::vector<std::uint64_t> offsets, std::uint64_t length,
              std::vector<ByteRange> wanted = {});
  ImageLayout(const ImageLayout&) = delete;
  ImageLayout& operator=(const ImageLayout&) = delete;

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  std::uint64_t offset(std::size_t index) const { return offsets_[index]; }
  std::uint64_t length() const { return length_; }  // bytes of the whole file
  // What of that tensor whoever copies is asked for, as bytes from its start: all of it, but where several
  // ranks stage one file together, each its share. Whole elements. Copying more does no harm.
  ByteRange wanted(std::size_t index) const {
    return wanted_.empty() ? ByteRange{0, tensors_[index].bytes()} : wanted_[index];
  }
  std::optional<std::size_t> find(std::string_view name) const;
  std::span<std::byte> slot(std::size_t index, std::span<std::byte> image) const;
  std::span<const std::byte> slot(std::size_t index, std::span<const std::byte> image) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t length_;
  std::vector<ByteRange> wanted_;                              // empty: all
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_, which never changes
};

struct Snapshot {
  std::shared_ptr<const ImageLayout> layout;
  std::shared_ptr<Arena> arena;
  Attributes attributes;
  std::int64_t step = 0;
  std::shared_ptr<const Arrival> arrival = {};  // none: the image is whole

  // Returns when the image is whole. Throws Error when that failed.
  void wait_for_arrival() const {
    if (arrival) arrival->wait();
  }
  std::span<const std::byte> bytes(std::size_t index) const;
  std::optional<std::span<const std::byte>> find(std::string_view name) const;
};

// The group of what is rank r's own, of several that train one state together, is "rank/<r>/":
// "rank/1/rng/cpu". Rank 0's lies where that of a process alone does.
inline constexpr std::string_view kRankGroup = "rank/";

// `state=`: one digest of names, types, shapes and bytes of all tensors and of all `decides` attributes,
// sorted by name, in a canonical encoding (documented in the source). Independent of layout, attempt and
// clock, and of how many ranks there are: what lies in kRankGroup is left out. `tensor_digests`, when given,
// are those of layout->tensors() in order and spare hashing again.
Digest state_digest(const Snapshot& snapshot, std::span<const Digest> tensor_digests = {});

}  // namespace holdfast::inline v1
