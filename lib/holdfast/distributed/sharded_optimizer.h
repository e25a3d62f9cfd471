// An optimizer whose slots are spread over the ranks (stage 1 of ZeRO; Rajbhandari et al., "ZeRO: Memory
// Optimizations Toward Training Trillion Parameter Models", 2019, arXiv:1910.02054): each rank updates its
// share of all parameters, and has slots for that share alone.
//
//   holdfast::DataParallel parallel(*net, group);                // equal parameters everywhere
//   holdfast::FusedAdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-4));
//   holdfast::ShardedOptimizer optimizer(adamw, *net, group);    // before the first update
//   state.add("parallel", parallel);
//   state.add("optimizer", optimizer);                           // not `adamw`
//   …
//   optimizer.zero_grad();
//   parallel.before_forward();
//   parallel.backward(loss_of(…), Gradients::accumulate);        // this rank's own gradients
//   optimizer.step();
//
// step() is reduce(), the update of the optimizer that was given, and gather(); a loop that does something
// between them calls the three itself (the update of LAMB is collective, too: all ranks make it or none
// does):
//
//   optimizer.reduce();                             // gradients: averaged, each rank gets its share
//   scaler.unscale(adamw);                          // its parameters are the shares now
//   optimizer.clip_grad_norm(1.0);                  // over all ranks
//   adamw.step_scaled(std::nullopt, scaler.found_inf());   // agreed: distributed/found_inf.h
//   optimizer.gather();                             // every rank gets all parameters
//
// From the constructor on the parameters of the optimizer that was given are the shares. Its groups and their
// options stay what they are, so schedules set its learning rates as before; nothing else can be done with
// it. Parameters of the module count: they are read again before each update, so they may be loaded or
// exchanged between updates, on all ranks alike.
//
// What it computes. Updates of SGD, Adam and AdamW go element by element. LAMB needs the norms of whole
// tensors: each rank adds up squares for what it has of them, and one all-reduce a group, of two numbers a
// parameter, makes the norms (another, of one number, where max_grad_norm is set). All variants of
// optim/lamb.h are there. With averaged gradients
// (ShardedOptions::averaged) FusedSgd's parameters and slots are those of the optimizer alone, to the bit (on
// a CPU, float and double). Adam's and AdamW's are within the few ulp of fused_adam.h: their kernels round
// the elements at a tensor's end otherwise than those in its middle, and shares end elsewhere. LAMB's
// directions likewise; its norms are added in another order, in double, so the ratio may differ by the error
// of a norm in float (a few 1e-7 of it; in double 1e-15). With reduce-scattered gradients the same holds in
// a world of two; with three ranks or more sums are rounded in another order than all-reduce's: that of the
// ranks, with Gloo. All ranks have the same bits, and a run that goes on with as many ranks as before has
// those of one that was not interrupted.
//
// Memory per rank in a world of W, for parameters of B bytes and an optimizer with S slots (Adam: 2): slots
// S·B/W instead of S·B; for that, shares of parameters and gradients, 2·B/W, and two chunks for collectives.
// Adam in FP32 with 8 ranks: 0.5·B instead of 2·B beside parameters and gradients. During a save every rank
// holds all slots in host memory, S·B, until the next update.
// Traffic per rank and step: (W−1)/W·B of gradients and as much of parameters, together an all-reduce; with
// `averaged` half as much more, but the gradients' part is hidden behind the backward pass. With Gloo a
// reduce-scatter is an exchange of shares (all-to-all), and a sum here: c10d's own for Gloo is an all-reduce
// of everything.
//
// Checkpoints hold whole tensors under the parameters' names ("optimizer/exp_avg/fc.weight"), as those of the
// optimizer alone would; so a run goes on with any number of ranks, one included, as long as it has a
// ShardedOptimizer. bring_together() gathers them, and every save() until the next update is local then; a
// Checkpointer with an Agreement has all ranks call it at the boundaries where they save. save() without it
// is collective: a loop that saves by itself does so on all ranks at the same steps.
//
// Requires: group, module and optimizer outlive this object; all ranks have the same parameters and make the
// same calls; every parameter that takes a gradient has one in each update (an update cannot be left out for
// some parameters alone). Parameters that take none when this is made are left alone. Errors: UsageError for
// another kind of optimizer, one that has made updates already, parameters
// that belong to no part of the module or have gaps in memory, and missing gradients, by name; GroupError
// when a partner is lost; RefusedError for a checkpoint whose slots do not fit. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "holdfast/distributed/process_group.h"
#include "holdfast/state/stateful.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

struct ShardedOptions {
  // Gradients are averages over all ranks already: DataParallel::backward with Gradients::reduce.
  bool averaged = false;
  // Of one collective. Bits do not depend on it.
  std::int64_t chunk_bytes = std::int64_t{25} << 20;
};

class ShardedOptimizer {
 public:
  ShardedOptimizer(torch::optim::Optimizer& optimizer, torch::nn::Module& module, ProcessGroup& group,
                   const ShardedOptions& options = {});
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  // Of the module's parameters.
  void zero_grad();

  void step();  // collective, as all that follow

  // Averages the gradients and gives each rank those of its share.
  void reduce();
  // Between reduce() and the update: scales the averaged gradients down to this L2 norm over all parameters,
  // as optim/clip.h does for whole ones; the same number on all ranks. Returns the norm before.
  at::Tensor clip_grad_norm(double max_norm);
  // Gives all ranks the updated parameters.
  void gather();

  // Bytes of the slots that this rank holds.
  std::int64_t slot_bytes() const;

  void bring_together();
  std::vector<at::Tensor> trained() const;  // parameters
  bool replicated() const { return true; }  // whole then, and gathered from the same slices on all ranks
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace holdfast::inline v1
