// How a TrainState keeps a module: state.add("model", *net, {.frozen = Frozen::digest}).
//
// Errors: none of its own. Threads: plain values.
#pragma once

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
  Frozen frozen = Frozen::store;
  // With Frozen::digest: also the buffers of those of its modules that are in evaluation mode.
  bool frozen_buffers = false;
};

}}  // namespace holdfast::v0_2
