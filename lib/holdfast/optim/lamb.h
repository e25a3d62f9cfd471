// LAMB: Adam's direction with decoupled weight decay, scaled for each tensor by its trust ratio (You et al.,
// "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, arXiv:1904.00962,
// algorithm 2, with the identity for phi). For update t of a parameter x with gradient g:
//
//   m = beta1 m + (1 - beta1) g          v = beta2 v + (1 - beta2) g^2
//   r = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay x
//   x = x - lr ratio r                   ratio = |x| / |r|; 1 where either norm is 0
//
// Groups without weight decay take ratio 1, as the authors' program does for biases and norms
// (optim/decay_groups.h makes such groups).
//
//   holdfast::Lamb optimizer(holdfast::decay_groups(*net, holdfast::LambOptions(2e-3).weight_decay(0.01)),
//                            holdfast::LambOptions(2e-3));
//
// Variants. The formula above is LambOptions as they come; what else is called LAMB, by options:
//
//   apex FusedLAMB, NVIDIA's BERT   .max_grad_norm(1): first g = g / max(1, G / max_grad_norm), G the norm of
//                                   all gradients of all groups together, after the loss scale. Not
//                                   clip_grad_norm's rule, which has 1e-6 in it. This is the reference.
//   … use_nvlamb                    .adapt_all(true): the ratio for tensors without weight decay, too. Key
//                                   biases of attention have no gradient but rounding noise; the ratio makes
//                                   whole steps of it, so these differ from machine to machine.
//   … grad_averaging=False          .grad_averaging(false): m = beta1 m + g. The slot keeps the mean; apex's
//                                   is 1 / (1 - beta1) times that.
//   … bias_correction=False         .bias_correction(false): r = m / (sqrt(v) + eps) + weight_decay x
//   … adam_w_mode=False             .decoupled(false): weight_decay x is added to g after the clip, not to r.
//   paper, with phi                 .most_norm(10): the ratio is min(|x|, 10) / |r|. Without clipping.
//   timm Lamb                       apex's; always_adapt is adapt_all.
//   NVIDIA's TensorFlow 1           .adapt_all(true), and StepOptions::clip_micro_batches = 1 (train/step.h)
//                                   in the place of max_grad_norm: each micro-batch's gradient is clipped
//                                   before it is added up, the sum is not. Its bias correction, which is
//                                   0 / 0 in the first step, is not copied: t counts from 1.
//
// max_grad_norm is one number for all groups, and clips in the update's own kernels, which leaves the
// gradients clipped; a loss scale must have been taken out, or be given as grad_scale. In FP16 training
// parameters and moments are FP32, and an update whose gradients overflowed is left out and not counted.
//
// The moments and the direction come from one fused kernel a list of tensors, the rest from at::_foreach_*.
// Norms of 16-bit parameters are computed in float. torch::optim has no LAMB: OptimizerState (TrainState)
// saves and restores it as "LAMB", slots exp_avg and exp_avg_sq; torch::save does not know it.
// The variants are options of a run; those that are as they come are not recorded, so a checkpoint from
// before there were any goes on. Agrees with the formula in double within 2e-5 (float) and 1e-13 (double)
// after 50 updates.
//
// A ShardedOptimizer (distributed/sharded_optimizer.h) gives it shares of tensors; norms are the whole ones'.
//
// Requires, Errors, Threads: as fused_step.h. On a GPU nobody waits; scaling costs one launch a tensor.
#pragma once

#include "holdfast/optim/fused_optimizer.h"
#include "holdfast/state/lamb_options.h"

namespace holdfast::inline v1 {

namespace internal {
struct LambKernel;
}

extern template class FusedOptimizer<torch::optim::Optimizer, LambOptions, internal::LambKernel>;
using Lamb = FusedOptimizer<torch::optim::Optimizer, LambOptions, internal::LambKernel>;

}  // namespace holdfast::inline v1
