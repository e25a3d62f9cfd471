// Spreads an optimizer's slots over the ranks (stage 1 of ZeRO; Rajbhandari et al., 2019, arXiv:1910.02054).
// Each rank updates its share of all parameters and has slots for that share only. Memory, traffic, bits:
// docs/ranks_in_detail.md.
//
//   holdfast::FusedAdamW adamw(net->parameters(), torch::optim::AdamWOptions(3e-4));
//   holdfast::ShardedOptimizer optimizer(adamw, *net, group);    // before the first update
//   state.add("optimizer", optimizer);                           // not `adamw`
//   parallel.backward(loss, Gradients::accumulate);              // this rank's own gradients
//   optimizer.step();
//
// Errors: UsageError, GroupError for a lost rank, RefusedError for a checkpoint whose slots do not fit.
// Threads: the training thread. Requirements: below.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/state/stateful.h"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

struct ShardedOptions {
  // True if the gradients are averages over all ranks already: DataParallel::backward with Gradients::reduce.
  bool averaged = false;
  // Bytes of one collective. The bits do not depend on it. Larger: fewer messages, more memory (two chunks).
  std::int64_t chunk_bytes = std::int64_t{25} << 20;
};

// Requires: group, module and optimizer outlive this object. All ranks have the same parameters and make the
// same calls. Every parameter that takes a gradient has one in each update. Parameters that need no gradient
// at construction are ignored, and must not thaw. The constructor replaces the parameters of the given
// optimizer by the shares; its groups and options stay, so schedules set its learning rates as before. Use
// it for nothing else.
//
// save() is local after bring_together(), until the next update; a Checkpointer with an Agreement calls that
// on all ranks. Without it save() is collective. docs/ranks_in_detail.md#the-sharded-optimizer has the parts
// of an update, and what a checkpoint holds.
//
// UsageError: another kind of optimizer, one that has made updates, parameters of no part of the module or
// with gaps in memory, missing gradients, and parameters that have thawed; the message has their names.
class HOLDFAST_EXPORT ShardedOptimizer {
 public:
  ShardedOptimizer(torch::optim::Optimizer& optimizer, torch::nn::Module& module, ProcessGroup& group,
                   const ShardedOptions& options = {});
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  // Zeroes the gradients of the module's parameters.
  void zero_grad();

  void step();  // reduce(), the update, gather(); collective, as these and clip_grad_norm()

  // Averages the gradients and gives each rank those of its share.
  void reduce();
  // Between reduce() and the update: scales the averaged gradients down to this L2 norm over all parameters,
  // as optim/clip.h does. All ranks pass the same number. Returns the norm before.
  at::Tensor clip_grad_norm(double max_norm);
  // Gives all ranks the updated parameters.
  void gather();

  // Bytes of this rank's slots.
  std::int64_t slot_bytes() const;

  void bring_together();
  std::vector<at::Tensor> trained() const;  // parameters
  bool replicated() const { return true; }  // whole, and gathered from the same slices on all ranks
  static constexpr bool kKnowsNoPosition = true;
  static constexpr bool kKnowsNoRates = true;
  void save(StateWriter& out) const;
  void load(const StateReader& in);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}}  // namespace holdfast::v0_2
