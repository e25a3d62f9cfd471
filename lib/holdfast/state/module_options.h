// What TrainState::add() takes beside a module or an optimizer.
//
//   state.add("backbone", *net, {.frozen = Frozen::digest});
//   state.add("splats", *net, {.may_change_shape = true});
//   state.add("optimizer", optimizer, {.may_append_groups = true});
//
// Errors: none. Threads: plain values.
#pragma once

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// What a checkpoint has of frozen weights: parameters without requires_grad.
enum class Frozen {
  store,  // their bytes
  // Their digests alone, while their bytes are those that the program had when it called resume(). The
  // program must have loaded the same weights before its next resume(); RefusedError (78) otherwise. Other
  // tensors are stored. docs/training_state.md#frozen-weights says what such a checkpoint needs.
  digest,
};

struct ModuleOptions {
  // Parameters and buffers of this module, and the optimizer slots of these parameters, may have other shapes
  // in a checkpoint than in the program, and may change them between two saves. load() gives them the
  // recorded shapes: the tensors stay the same objects (Tensor::set_data), so modules and optimizers keep
  // them; views of their old memory do not follow, and gradients of another shape are dropped. A program may
  // also put new tensors in their place, in the module and in the optimizer's groups and state(). Names,
  // types, groups and options stay fixed, and a slot has its parameter's shape (those of LBFGS have none).
  // Cost: after_step() copies those in host memory before it returns, because a program that grows them does
  // that between after_step() and before_update().
  bool may_change_shape = false;
  Frozen frozen = Frozen::store;
  // With Frozen::digest: also the buffers of those of its modules that are in evaluation mode.
  bool frozen_buffers = false;
};

struct OptimizerOptions {
  // The program appends parameter groups as it goes (an unfreezing), and saves accept that. load() appends
  // the groups that the checkpoint has and the program lacks, with the recorded options. Their parameters are
  // those of added modules that are in no group of this optimizer yet, by their recorded names. Off: another
  // number of groups is refused.
  bool may_append_groups = false;
};

}}  // namespace holdfast::v0_2
