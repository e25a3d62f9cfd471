// One file for all ranks: the state of rank 0, and beside it the tensors that each other rank alone has, in
// groups "rank/<r>/" (snapshot.h, kRankGroup).
//
// Errors: Error, UsageError. Threads: RankedSource as the source that it wraps; the others are pure
// functions.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The name of a rank's own tensor in the file: "rank/1/rng/cpu". Rank 0's keeps its name.
std::string name_in_file(int rank, const std::string& name);

// The tensors of a file without those of other ranks.
std::vector<TensorSpec> without_ranks(std::span<const TensorSpec> tensors);
// True if the file has that rank's own tensors.
bool has_own_of(int rank, std::span<const TensorSpec> tensors);
// The snapshot that this rank would have written alone: the same image through another layout. Own tensors
// that the file lacks are replaced by rank 0's.
std::shared_ptr<Snapshot> share_of(int rank, const std::shared_ptr<Snapshot>& whole);

// Total size of the rank's own tensors in `tensors`.
std::uint64_t own_bytes(const SnapshotSource& source, std::span<const TensorSpec> tensors);
// What a rank has of its own: "rng/cpu (5056 bytes), rng/gpu.0 (16 bytes)". All ranks must have the same
// text, or no save can succeed.
std::string own_tensors(SnapshotSource& source);
// Copies another rank's own_of() into its place in the image. Throws Error if the size differs.
void put_own_of(int rank, std::string_view own, const SnapshotSource& source, const ImageLayout& layout,
                std::span<std::byte> image);
// This rank's own tensors now: their bytes concatenated, in describe()'s order.
std::string own_of(SnapshotSource& source);

// A rank's source. It describes the own tensors of all ranks, identically on each rank, but copies only its
// own rank's. The others arrive as messages.
class RankedSource final : public SnapshotSource {
 public:
  RankedSource(SnapshotSource& source, int rank, int world_size)
      : source_(source), rank_(rank), world_size_(world_size) {}

  std::shared_ptr<const void> hold_list() override { return source_.hold_list(); }
  std::shared_ptr<const void> fix_form() override { return source_.fix_form(); }
  std::vector<TensorSpec> describe() override;
  bool may_change_form() const override { return source_.may_change_form(); }
  void copy_tensors(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  std::unique_ptr<LateCopy> prepare_late(const ImageLayout& layout, std::span<std::byte> image) override;
  bool on_device() const override { return source_.on_device(); }
  std::unique_ptr<LateCopy> prepare_independent(const ImageLayout& layout,
                                                std::span<std::byte> image) override;
  PrepareImage image_preparation() const override { return source_.image_preparation(); }
  void copy_early(std::span<const std::string> names) override { source_.copy_early(names); }
  Attributes attributes() override { return source_.attributes(); }
  void advance(const StepReport& report) override { source_.advance(report); }
  void last_was_skipped() override { source_.last_was_skipped(); }
  std::int64_t step() const override { return source_.step(); }
  DataEnd data_end() const override { return source_.data_end(); }
  std::vector<std::string> changed_since(const Snapshot& image) override {
    return source_.changed_since(*share_of(rank_, std::make_shared<Snapshot>(image)));
  }
  std::vector<std::string> changed_unseen() override { return source_.changed_unseen(); }
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
  bool needs_others() const override { return source_.needs_others(); }
  bool own_of_rank(const TensorSpec& tensor) const override { return source_.own_of_rank(tensor); }
  bool replicated(const TensorSpec& tensor) const override { return source_.replicated(tensor); }
  bool trained(const TensorSpec& tensor) const override { return source_.trained(tensor); }
  void copy_own(const ImageLayout& layout, std::span<std::byte> image) override {
    source_.copy_own(layout, image);
  }
  void derive_own(int rank) override { source_.derive_own(rank); }
  std::vector<std::string> doubts() override { return source_.doubts(); }
  void told_to_stop() override { source_.told_to_stop(); }

 private:
  SnapshotSource& source_;
  const int rank_;
  const int world_size_;
};

}}}  // namespace holdfast::v0_2::internal
