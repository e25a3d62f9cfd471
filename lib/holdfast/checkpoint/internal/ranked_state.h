// One file for all ranks: the state of a process alone, and beside it what is the other ranks' own, in groups
// "rank/<r>/" (snapshot.h, kRankGroup).
//
// Threads: RankedSource as its own source; the rest are free functions, pure.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

// Where that tensor of that rank lies: "rank/1/rng/cpu"; rank 0's under its own name.
std::string name_in_file(int rank, const std::string& name);

// Those that a rank alone has, of the tensors of a file.
std::vector<TensorSpec> without_ranks(std::span<const TensorSpec> tensors);
// Whether the file has what is that rank's own.
bool has_own_of(int rank, std::span<const TensorSpec> tensors);
// What that rank would have written alone: the same image, seen through another layout. What is missing of
// its own is rank 0's.
std::shared_ptr<Snapshot> share_of(int rank, const std::shared_ptr<Snapshot>& whole);

// What is a rank's own, of `tensors`: their bytes together.
std::uint64_t own_bytes(const SnapshotSource& source, std::span<const TensorSpec> tensors);
// What is this rank's own now: the bytes of those tensors one after the other, in describe()'s order.
std::string own_of(SnapshotSource& source);

// A rank's source: describes all ranks' own tensors, the same on each. Of these it copies its rank's alone;
// the others' come from where they are.
class RankedSource final : public SnapshotSource {
 public:
  RankedSource(SnapshotSource& source, int rank, int world_size)
      : source_(source), rank_(rank), world_size_(world_size) {}

  std::vector<TensorSpec> describe() override;
  void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  std::unique_ptr<LateCopy> prepare_late(const ImageLayout& layout, std::span<std::byte> image) override;
  bool on_device() const override { return source_.on_device(); }
  std::unique_ptr<LateCopy> prepare_independent(const ImageLayout& layout,
                                                std::span<std::byte> image) override;
  PrepareImage image_preparation() const override { return source_.image_preparation(); }
  void copy_early(std::span<const std::string> names) override { source_.copy_early(names); }
  Attributes attributes() override { return source_.attributes(); }
  void advance(const StepReport& report) override { source_.advance(report); }
  std::int64_t step() const override { return source_.step(); }
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override {
    source_.check(tensors, attributes, overrides);
  }
  void load(const Snapshot& snapshot, const Overrides& overrides) override {
    source_.load(snapshot, overrides);
  }
  void load_weights(const Snapshot& snapshot) override { source_.load_weights(snapshot); }
  bool takes_weight(const TensorSpec& tensor) const override { return source_.takes_weight(tensor); }
  void bring_together() override { source_.bring_together(); }
  bool own_of_rank(const TensorSpec& tensor) const override { return source_.own_of_rank(tensor); }
  bool replicated(const TensorSpec& tensor) const override { return source_.replicated(tensor); }
  void copy_own(const ImageLayout& layout, std::span<std::byte> image) override {
    source_.copy_own(layout, image);
  }
  void derive_own(int rank) override { source_.derive_own(rank); }

 private:
  SnapshotSource& source_;
  const int rank_;
  const int world_size_;
};

}  // namespace holdfast::inline v1::internal
