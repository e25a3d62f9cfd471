// A training state in plain memory, and a pseudo-training that is deterministic to the bit. Every update
// draws from a random stream and changes all tensors, so a wrongly restored state shows in the loss. It has
// early tensors (a buffer, the stream), late ones (parameters, slots), slots that appear with the first
// update, and an evaluation that changes what evaluations change.
//
// Threads: as in SnapshotSource.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::test {

class MemorySource : public SnapshotSource {
 public:
  struct Options {
    std::size_t elements = 1000;  // of the weight
    double learning_rate = 0.1;   // decides the next step: compared on resume
    std::int64_t threads = 2;     // environment.threads: a record
    std::uint64_t seed = 1;
    std::int64_t epoch_size = 100;  // samples; a step applies 4
    bool spread = false;            // SourceTraits::needs_others
    bool uneven_buffers = false;    // the buffer is large and differs between ranks
    bool mask = false;              // a float buffer "model/mask", as of causal attention: 0 and -inf
    int rank = -1;                  // rank among several: has its own stream, which no weight depends on
    std::size_t streams = 1;        // so many of them, in one tensor
  };
  MemorySource() : MemorySource(Options{}) {}
  explicit MemorySource(Options options);

  // Makes one update and returns its report. The state advances when the report reaches after_step.
  StepReport train();
  // Changes what a validation pass changes: train/eval flag, random stream, a metric. Not the parameters.
  void evaluate();

  float& weight(std::size_t i) { return weight_[i]; }
  float& momentum(std::size_t i) { return momentum_[i]; }
  float& mask(std::size_t i) { return mask_[i]; }
  double learning_rate() const { return options_.learning_rate; }
  Cursor cursor() const { return cursor_; }
  std::int64_t loads = 0;          // calls of load()
  std::int64_t weight_loads = 0;   // and of those of weights alone
  std::int64_t copies = 0;         // calls of copy() for Part::all and Part::early
  std::int64_t late_copies = 0;    // and for Part::late
  std::uint64_t copied_bytes = 0;  // by the former
  bool copied_over = false;        // the last of those found bytes of an earlier state in the image

  // Makes the attributes larger, like a user's large state.
  std::map<std::string, std::string> extra;
  // Called in copy(), but for Part::own; may throw.
  std::function<void()> on_copy;
  // Called in advance, before the step counts; may throw.
  std::function<void()> on_advance;
  // Called in describe; may throw.
  std::function<void()> on_describe;
  // Called in copy() for Part::own; may throw.
  std::function<void()> on_own_copy;
  // Called by a late copy before it begins, on its thread.
  std::function<void()> on_late_copy;
  // Waits until the newest late copy has finished, so that an unannounced update does not race with it.
  void wait_for_late_copy() const;

  std::vector<TensorSpec> describe() override;
  TensorRole role(const TensorSpec& tensor) const override;
  Attributes attributes() override;
  std::map<std::string, std::string> value_digests() override { return digests; }
  std::map<std::string, std::string> digests;
  SourceTraits traits() const override { return {.needs_others = options_.spread, .shard = shard}; }
  std::optional<Shard> shard;  // of the data
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override;
  Position advance(const StepReport& report) override;
  Position position() const override { return {step_, end}; }
  std::int64_t step() const { return step_; }
  DataEnd end = DataEnd::none;  // after the next update
  void learn(const StepNews& news) override { early_.insert(news.early.begin(), news.early.end()); }
  std::vector<std::string> changes;  // since an image
  std::vector<std::string> changed(const Snapshot* image) override {
    return image ? changes : std::vector<std::string>();
  }
  void check(std::span<const TensorSpec> tensors, const Attributes& attributes,
             const Overrides& overrides) override;
  void load(const Snapshot& snapshot, const LoadOptions& options) override;
  void bring_together() override { ++brought_together; }
  std::int64_t brought_together = 0;  // calls of it
  bool weight_is_replicated = true;
  std::int64_t batches() const { return batches_[0]; }
  std::vector<std::uint64_t> own() const { return own_; }

 private:
  void load_weights(const Snapshot& snapshot);
  struct Piece {
    std::string name;
    DType dtype;
    std::span<std::byte> bytes;
    bool late;
  };
  std::vector<Piece> pieces();

  std::atomic<std::int64_t> late_copied_ = 0;  // which of late_copies
  Options options_;
  std::set<std::string> early_;  // named by learn()
  std::int64_t step_ = 0;
  Cursor cursor_;
  bool training_ = true;
  std::vector<float> weight_;
  std::vector<double> bias_;
  std::vector<float> momentum_;              // empty until the first update
  std::vector<std::int64_t> batches_ = {0};  // a buffer
  std::vector<float> mask_;                  // another one; empty without Options::mask
  std::vector<std::uint64_t> stream_;        // the random stream
  std::vector<std::uint64_t> own_;           // this rank's own; empty alone
};

}  // namespace holdfast::test
