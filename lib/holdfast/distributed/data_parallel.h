// Data-parallel training: every rank has the whole model and a share of each batch; gradients are averaged
// over the ranks while the backward pass is still running, by LibTorch's own engine (c10d::Reducer).
//
//   holdfast::ProcessGroup group;
//   // After net->to(device), before the optimizer's first step.
//   holdfast::DataParallel parallel(*net, group);
//   state.add("parallel", parallel);
//   …
//   optimizer.zero_grad();
//   parallel.before_forward();
//   const auto loss = loss_of(net->forward(batch.inputs), batch.targets);
//   parallel.backward(loss);  // instead of loss.backward()
//   optimizer.step();
//
// The constructor gives all ranks rank 0's parameters and buffers, after it has seen that all have the same
// ones (names, types, shapes, requires_grad), and looks afterwards whether they arrived. Whatever the seeds
// were, all ranks begin alike, and since all apply the same averages, they stay alike to the bit; verify()
// looks.
//
// Batches: an average over ranks of means over equal shares is the mean over the whole. Ranks with unequal
// shares weight their samples unequally. Several micro-batches an update: divide each loss by their number,
// and reduce with the last:
//
//   for (int i = 0; i < n; ++i) {
//     parallel.before_forward();
//     parallel.backward(loss_of(…) / n, i + 1 < n ? Gradients::accumulate : Gradients::reduce);
//   }
//
// Order: gradients are summed in buckets. After the first reduced pass the buckets are arranged anew, in the
// order in which gradients became ready, once and for good; save() keeps that order, so that a resumed run
// adds in the same order from its first step on. On three ranks or more another order is another rounding.
//
// In a world of one it is a plain backward(): no copies, no hooks.
//
// holdfast::Step makes these calls, given StepOptions::parallel; the loss that it tells is the mean over all
// ranks (sum_over_ranks.h).
//
// Evaluation: call the module alone. Nothing of this class communicates then, so one rank may evaluate while
// others wait in before_forward (ProcessGroup's time-out holds).
//
// Requires: group outlives this object, the module's tensors stay what they were (no to(), no new
// parameters), every rank makes the same calls. One backward() at a time. Errors: UsageError when ranks have
// different models, naming the rank and the first difference; for parameters without a gradient, naming them
// (unless find_unused). GroupError when a partner is lost. RefusedError for a recorded order that is not one
// of this model's parameters. Threads: the training thread. CUDA: its current device and stream.
//
// What it costs and how it scales, on paper: published rates, nothing of it was measured. Gradients are B
// bytes (their elements, counted: ResNet-50 102 MB, BERT-Large 1345 MB; half with fp16 or bf16 compression),
// on H hosts of G GPUs each. NCCL adds up inside the hosts, each GPU's share between the hosts, and spreads
// the sums again, all of it at once in pieces. In each direction a step moves
//
//   2·(G−1)/G·B through a GPU's NVLinks   450 GB/s with NVSwitch on H100 [1], 300 GB/s on A100 [2]
//   2·(H−1)/H·B through a host's network  400 GB/s by EFA on p5.48xlarge [3], 50 GB/s on p4d.24xlarge [4]
//
// and takes the larger of the two times at least, their sum at most (ms; no rate is ever quite reached):
//
//                            8 GPUs of a host   network of 2 hosts   of very many
//   ResNet-50    H100, p5          0.40               0.26              0.51
//                A100, p4d         0.60               2.0               4.1
//   BERT-Large   H100, p5          5.2                3.4               6.7
//                A100, p4d         7.8                27                54
//
// So a step's traffic grows to twice B and no further, however many hosts there are; latencies do grow, with
// 2·(W−1) hops a bucket on a ring, of which there are B / bucket_bytes, and 2·log2(H) on NCCL's trees between
// hosts. All but the last bucket (at most bucket_bytes: 1 ms over p4d's network) is hidden while the backward
// pass, two thirds of a step, still runs. With T for a step of one GPU and C for the above:
//
//   efficiency = T / (T + last + max(0, C − last − 2/3·T))
//
// ResNet-50 on very many p4d hosts: 99 % at T = 100 ms, 90 % at 10 ms, 42 % at 2 ms. Batches that grow with W
// keep T; a global batch that stays makes it T/W, and no step is shorter than C. Besides, not hidden: buffers
// from rank 0 before each step (ResNet-50: 0.2 MB).
// [1] NVIDIA H100 data sheet, NVLink 900 GB/s both ways together [2] NVIDIA A100 data sheet, 600 GB/s
// [3] Amazon EC2 P5, 3200 Gb/s a host [4] Amazon EC2 P4d, 400 Gb/s; the factors 2·(n−1)/n are those of
// nccl-tests (doc/PERFORMANCE.md).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/distributed/process_group.h"
#include "holdfast/state/stateful.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace holdfast::inline v1 {

// What is sent; half the bytes, with the rounding of 16 bits. Divided before it is sent, so that sums do not
// overflow.
enum class GradientCompression { none, fp16, bf16 };

enum class Gradients { reduce, accumulate };

struct DataParallelOptions {
  // Some parameters take no part in some steps. Costs a walk over the graph and one more small reduction a
  // step, and the buckets keep the order of registration. With micro-batches: whatever takes part must do so
  // in the last one.
  bool find_unused = false;
  // Rank 0's buffers (running means of batch normalization) go to all before each first micro-batch.
  bool broadcast_buffers = true;
  GradientCompression compression = GradientCompression::none;
  // Small: the first sums begin early. Large: fewer messages. Both are options of the run, compared on
  // resume.
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
};

class DataParallel {
 public:
  // Collective.
  DataParallel(torch::nn::Module& module, ProcessGroup& group, const DataParallelOptions& options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // Collective where there are buffers to broadcast.
  void before_forward();
  // Returns when the gradients are there: averaged over all ranks, or this rank's own, added to what was
  // there. Collective with Gradients::reduce.
  void backward(const at::Tensor& loss, Gradients gradients = Gradients::reduce);

  // Whether parameters and buffers are the same on all ranks, bit by bit: UsageError naming rank and tensor
  // if not. Reads the whole model; collective. Between a backward() and the next before_forward() buffers
  // differ by right.
  void verify();

  ProcessGroup& group() const { return *group_; }

  // Indices of the parameters that take gradients, in the buckets' order; empty until it is settled.
  const std::vector<std::vector<std::size_t>>& buckets() const { return buckets_; }

  // A program that had none so far goes on with one.
  static constexpr bool kMayBeNew = true;
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
  std::unique_ptr<Parts> parts_;  // none in a world of one
};

}  // namespace holdfast::inline v1
