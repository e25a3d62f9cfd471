// Batch normalization over the batches of all ranks together, forward and backward. Use it if a rank's share
// is too small for its own statistics (detection, large pictures).
//
//   struct Net : torch::nn::Module {
//     holdfast::SyncBatchNorm2d norm = register_module("norm", holdfast::SyncBatchNorm2d(64));
//   };
//   holdfast::synchronize_batch_norms(*net, group);      // after net->to(device), before DataParallel
//
// Requires: the group outlives the training; all ranks run the same layers in the same order. Errors:
// UsageError for inputs other than [N, C, H, W], one value per channel over all ranks, second derivatives, or
// an ordinary batch norm in the tree. GroupError for a lost rank. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { inline namespace v0_2 {

// It is a torch::nn::BatchNorm2d with the same options, parameters, buffers and names, so checkpoints of both
// are interchangeable. It computes like one, to the bit, before synchronize_batch_norms(), in evaluation, and
// in a world of one. A C++ module calls its layers by type, so a program must write SyncBatchNorm2d itself.
// An ordinary batch norm in the tree is an error, because it would silently stay local.
//
// Each rank sends count, mean and sum of squared deviations of each channel. All merge them in the order of
// ranks, without cancellation, so all have the same bits (Chan, Golub, LeVeque, "Updating Formulae and a
// Pairwise Algorithm for Computing Sample Variances", 1979). Shares may differ in size or be empty. Gradients
// of the input are those of the sum of all losses. Gradients of weight and bias are this rank's part, which
// DataParallel averages. With equal shares and mean losses the result equals that of one process with the
// whole batch. The difference is at most 1e-5 (float) or 1e-13 (double) of the largest number. FP16 and BF16
// inputs are computed in float.
//
// Costs per layer: a gather of 2C+1 numbers forward and an all-reduce of 2C backward, both waited for, and
// elementwise operators instead of a fused kernel. Only forward passes of training are collective.
class HOLDFAST_EXPORT SyncBatchNorm2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  at::Tensor forward(const at::Tensor& input);

  // Null: statistics of this rank's batches only.
  void synchronize(ProcessGroup* group) { group_ = group; }

 private:
  void track(const at::Tensor& mean, const at::Tensor& variance);

  ProcessGroup* group_ = nullptr;
};
TORCH_MODULE(SyncBatchNorm2d);

// Every SyncBatchNorm2d in `module` (itself included) computes over `group` from now on. Returns their
// number.
HOLDFAST_EXPORT std::size_t synchronize_batch_norms(torch::nn::Module& module, ProcessGroup& group);

}}  // namespace holdfast::v0_2
