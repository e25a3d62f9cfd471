// One file for all ranks: the state of rank 0, and beside it the tensors that each other rank alone has, in
// groups "rank/<r>/" (snapshot.h, kRankGroup).
//
// Errors: Error, UsageError. Threads: RankedSource as the source that it wraps; the others are pure
// functions.
#pragma once

#include <map>
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

// What a rank has of its own: "rng/cpu (5056 bytes), rng/gpu.0 (16 bytes)". All ranks must have the same
// text, or no save can succeed.
std::string own_tensors(SnapshotSource& source);
// Copies another rank's own_of() into its place in the image. Throws Error if the size differs.
void put_own_of(int rank, std::string_view own, const ImageLayout& layout, std::span<std::byte> image);
// This rank's own tensors now: their bytes concatenated, in describe()'s order.
std::string own_of(SnapshotSource& source);

// A rank's source. It describes the own tensors of all ranks, identically on each rank, but copies only its
// own rank's. The others arrive as messages.
class RankedSource final : public SnapshotSource {
 public:
  RankedSource(SnapshotSource& source, int rank, int world_size)
      : source_(source), rank_(rank), world_size_(world_size) {}

  std::vector<TensorSpec> describe() override;
  TensorRole role(const TensorSpec& tensor) const override { return source_.role(tensor); }
  Attributes attributes() override { return source_.attributes(); }
  std::map<std::string, std::string> value_digests() override { return source_.value_digests(); }
  SourceTraits traits() const override { return source_.traits(); }
  std::shared_ptr<const void> hold(Hold what) override { return source_.hold(what); }
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  Position advance(const StepReport& report) override { return source_.advance(report); }
  Position position() const override { return source_.position(); }
  void learn(const StepNews& news) override { source_.learn(news); }
  std::vector<std::string> changed(const Snapshot* image) override {
    return source_.changed(image ? share_of(rank_, std::make_shared<Snapshot>(*image)).get() : nullptr);
  }
  std::vector<std::string> doubts() override { return source_.doubts(); }
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override {
    source_.check(tensors, attributes, overrides);
  }
  void load(const Snapshot& snapshot, const LoadOptions& options) override {
    source_.load(snapshot, options);
  }
  void bring_together() override { source_.bring_together(); }

 private:
  SnapshotSource& source_;
  const int rank_;
  const int world_size_;
};

}}}  // namespace holdfast::v0_2::internal
