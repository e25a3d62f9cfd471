// A Snapshot: the host-memory image of a TrainState at one step boundary. Code above it knows no files, code
// below it knows no Torch.
//
// The arena *is* the byte image of the checkpoint file (format/file_plan.h says where each tensor lies), so a
// commit needs no further copy. After staging, tensors and attributes never change; only sealing fills in the
// file's head ([0, head) of the image). With an `arrival`, a device still copies parts of the image: bytes()
// and find() then require that its wait() has returned.
//
// Errors: Error of wait_for_arrival(). Threads: after staging, const methods may be called from any thread.
// Lifetime: shared_ptr, because the writer, a waiting `save()` and an evaluation may hold the same one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/arrival.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/finite.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

// Bytes [begin, end) of a file, its image or a tensor.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const ByteRange&) const = default;
};

// Where every tensor lies in the image. A pure function of tensor list and attribute capacity.
class HOLDFAST_EXPORT ImageLayout {
 public:
  // Throws Error (a defect) unless there is one offset per tensor and every tensor lies within `length`.
  // `wanted`: one range per tensor, within it; empty: everything.
  ImageLayout(std::vector<TensorSpec> tensors, std::vector<std::uint64_t> offsets, std::uint64_t length,
              std::vector<ByteRange> wanted = {});
  ImageLayout(const ImageLayout&) = delete;
  ImageLayout& operator=(const ImageLayout&) = delete;

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  std::uint64_t offset(std::size_t index) const { return offsets_[index]; }
  std::uint64_t length() const { return length_; }  // size of the whole file
  // The part of tensor `index` that a copy must deliver, as bytes from its start. It is everything, unless
  // several ranks stage one file together. Whole elements; copying more is harmless.
  ByteRange wanted(std::size_t index) const {
    return wanted_.empty() ? ByteRange{0, tensors_[index].bytes()} : wanted_[index];
  }
  std::optional<std::size_t> find(std::string_view name) const;  // index; nullopt: no such tensor
  std::span<std::byte> slot(std::size_t index, std::span<std::byte> image) const;  // its bytes there
  std::span<const std::byte> slot(std::size_t index, std::span<const std::byte> image) const;

 private:
  std::vector<TensorSpec> tensors_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t length_;
  std::vector<ByteRange> wanted_;                              // empty: everything
  std::unordered_map<std::string_view, std::size_t> by_name_;  // views into tensors_, which never changes
};

class PieceDigests;  // piece_digests.h

struct HOLDFAST_EXPORT Snapshot {
  std::shared_ptr<const ImageLayout> layout;
  std::shared_ptr<Arena> arena;
  Attributes attributes;
  std::int64_t step = 0;
  std::shared_ptr<const Arrival> arrival = {};  // null: the image is complete
  // By tensor: is it a trained parameter or optimizer slot (TensorRole::trained). Empty: all are. Not
  // part of the file.
  std::vector<bool> trained = {};
  // What was digested while the image was filled; complete when the image is. Null: nothing. Nobody may
  // change the bytes of those pieces afterwards.
  std::shared_ptr<const PieceDigests> digests = {};

  // Blocks until the image is complete. Throws Error if a copy failed.
  void wait_for_arrival() const {
    if (arrival) arrival->wait();
  }
  std::span<const std::byte> bytes(std::size_t index) const;
  Infinity infinity(std::size_t index) const {
    return trained.empty() || trained[index] ? Infinity::not_finite : Infinity::allowed;
  }
  std::optional<std::span<const std::byte>> find(std::string_view name) const;
};

// The group of tensors that rank r alone has is "rank/<r>/": "rank/1/rng/cpu". Rank 0's have the names of a
// process that trains alone.
inline constexpr std::string_view kRankGroup = "rank/";

// `state=`: one digest of names, types, shapes and bytes of all tensors, and of all `decides` attributes,
// sorted by name. docs/file_format.md#the-state-digest has the encoding. Layout, attempt, clock and the
// number of ranks do not influence it: kRankGroup is left out. `tensor_digests`, if given, are those of
// layout->tensors() in order, and save the hashing.
HOLDFAST_EXPORT Digest state_digest(const Snapshot& snapshot, std::span<const Digest> tensor_digests = {});

}}  // namespace holdfast::v0_2
