// Batch normalization over the batches of all ranks together: mean and variance are those of the whole batch,
// in the forward pass and in the gradients. Where a rank's share is small (detection, large pictures), its
// own statistics are too rough to train with.
//
//   struct Net : torch::nn::Module {
//     holdfast::SyncBatchNorm2d norm = register_module("norm", holdfast::SyncBatchNorm2d(64));
//     …                                                  // forward: norm->forward(x), as ever
//   };
//   net->to(device);
//   holdfast::synchronize_batch_norms(*net, group);      // from here on over all ranks
//   holdfast::DataParallel parallel(*net, group);
//
// It is a torch::nn::BatchNorm2d: options, parameters, buffers and their names are those, so checkpoints go
// on with either. Until synchronize_batch_norms() it also computes as that one does, and so it does in
// evaluation, and in a world of one, to the bit. A C++ module calls its layers by their own type, so nothing
// can be put in their place from outside: write SyncBatchNorm2d in the type's place. An ordinary batch norm
// in the tree is an error of synchronize_batch_norms(), or it would silently stay a local one.
//
// What it computes. Each rank sends count, mean and sum of squared deviations for each channel; all merge
// them in the order of ranks (Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing
// Sample Variances", 1979: no cancellation), so all have the same bits, running statistics included. Shares
// may be of different sizes, also empty. Gradients of the input are those of the sum of all ranks' losses;
// those of weight and bias are this rank's part, which DataParallel averages: together with equal shares and
// mean losses that is the gradient of one process with the whole batch. Equal to that within rounding: float
// 1e-5, double 1e-13 of the largest number. FP16 and BF16 inputs are computed in float.
//
// Costs: a gather of 2C+1 numbers a layer forward and an all-reduce of 2C backward, both waited for; and
// ATen's elementwise operators in the place of one fused kernel. Forward passes of training are collective;
// evaluation is not. No second derivatives.
//
// Errors: UsageError as above, for inputs of other dimensions than [N, C, H, W], and for one value per
// channel over all ranks; GroupError when a partner is lost. Requires: the group outlives the module's
// training; all ranks run the same layers in the same order. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstddef>

#include "holdfast/distributed/process_group.h"

namespace holdfast::inline v1 {

class SyncBatchNorm2dImpl : public torch::nn::BatchNorm2dImpl {
 public:
  using torch::nn::BatchNorm2dImpl::BatchNorm2dImpl;

  at::Tensor forward(const at::Tensor& input);

  // Null: this rank's batches alone.
  void synchronize(ProcessGroup* group) { group_ = group; }

 private:
  double next_average_factor();

  ProcessGroup* group_ = nullptr;
};
TORCH_MODULE(SyncBatchNorm2d);

// All SyncBatchNorm2d below `module` (or itself) from now on compute over `group`. Returns how many there
// are.
std::size_t synchronize_batch_norms(torch::nn::Module& module, ProcessGroup& group);

}  // namespace holdfast::inline v1
