// Data-parallel training: every rank has the whole model and a share of each batch. LibTorch's engine
// (c10d::Reducer) averages the gradients over the ranks during the backward pass. Costs:
// docs/ranks_in_detail.md.
//
//   holdfast::DataParallel parallel(*net, group);   // after net->to(device), before the first step
//   state.add("parallel", parallel);
//   parallel.before_forward();                      // in each step, after zero_grad()
//   parallel.backward(loss);                        // instead of loss.backward()
//
// Requires: the group outlives it; the module keeps its tensors; all ranks make the same calls. Errors:
// UsageError for different models, parameters without gradients or thawed ones; GroupError; RefusedError for
// a recorded order of other parameters. Threads: the training thread, its current CUDA device and stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/state/stateful.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace holdfast { inline namespace v0_2 {

// Type that is sent. 16 bits halve the traffic and round. Gradients are divided before they are sent, so that
// sums do not overflow.
enum class GradientCompression { none, fp16, bf16 };

// reduce: averages over all ranks. accumulate: only adds to this rank's gradients.
enum class Gradients { reduce, accumulate };

struct DataParallelOptions {
  // True if some parameters take no part in some steps. Off, because it costs a walk over the graph and a
  // small reduction in each step, and buckets keep the order of registration. With micro-batches every
  // parameter that takes part must do so in the last one.
  bool find_unused = false;
  // Rank 0's buffers (running means of batch norms) go to all ranks before the first micro-batch of each
  // step. On, as in PyTorch. Costs one broadcast per step.
  bool broadcast_buffers = true;
  // Off, so that gradients keep their bits.
  GradientCompression compression = GradientCompression::none;
  // Bytes of the first and of the other buckets; defaults are PyTorch's. Small: the first sums begin early.
  // Large: fewer messages. Both are options of the run, compared on resume.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
};

// The constructor checks that all ranks have the same parameters and buffers (names, types, shapes,
// requires_grad). Then it sends rank 0's, and checks that they arrived. Since all ranks apply the same
// averages, they stay equal to the bit.
//
// Batches: with equal shares the average of the ranks' means is the mean over the whole batch. Unequal shares
// weight their samples unequally. With n micro-batches divide each loss by n and reduce with the last one:
//
//   for (int i = 0; i < n; ++i) {
//     parallel.before_forward();
//     parallel.backward(loss_of(…) / n, i + 1 < n ? Gradients::accumulate : Gradients::reduce);
//   }
//
// Order: gradients are summed in buckets. After the first reduced pass the buckets are arranged once, in the
// order in which gradients became ready. save() keeps that order, because with three ranks or more another
// order rounds differently.
//
// A world of one is a plain backward(): no copies, no hooks. holdfast::Step makes these calls if it has
// StepOptions::parallel. Evaluation: call the module alone. Nothing communicates then, so one rank may
// evaluate while the others wait in before_forward (limit: GroupOptions::timeout).
class HOLDFAST_EXPORT DataParallel {
 public:
  // Collective.
  DataParallel(torch::nn::Module& module, ProcessGroup& group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Collective if there are buffers to broadcast.
  void before_forward();
  // Returns when the gradients are complete. reduce: averages over all ranks, collective. accumulate: this
  // rank's own, added to the present ones.
  void backward(const at::Tensor& loss, Gradients gradients = Gradients::reduce);

  // Checks that parameters and buffers have the same bits on all ranks; UsageError names rank and tensor.
  // Reads the whole model. Collective. Between backward() and the next before_forward() buffers may differ.
  void verify();

  ProcessGroup& group() const { return *group_; }

  // Indices of the parameters with gradients, in the buckets' order. Empty until the order is settled.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }

  // A run that started with one rank may continue with several.
  static constexpr bool kMayBeNew = true;
  static constexpr bool kKnowsNoPosition = true;
  static constexpr bool kKnowsNoRates = true;
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Parts;

  void settle_buckets();

  ProcessGroup* group_;
  DataParallelOptions options_;
  bool buffers_due_ = true;
  bool settled_ = false;  // the Reducer has arranged its buckets for the last time
  std::vector<std::vector<std::size_t>> buckets_;
  std::unique_ptr<Parts> parts_;  // null in a world of one
};

}}  // namespace holdfast::v0_2
