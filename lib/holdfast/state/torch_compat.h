// The only place for differences between LibTorch 2.10 and 2.15. Exceptions: distributed/internal/
// c10d_compat.h, train/internal/host_recording.h, and one difference in train/device_graph.cc that needs a
// class derived from CUDAGraph.
//
// Each entry names its releases and what happens without it. It works in all releases without a version
// check. These are the same in all releases: arguments of the fused and foreach kernels, autocast by device
// type, the two setters of TF32 (see precision/precision.cc), generators, storages, streams. `tests/run
// --libtorch VERSION` tests another release; --nightly tests 2.10.0 and the newest.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace compat {

// Restores the options that `groups` bring into the optimizer that was constructed from them.
//   up to 2.11  the optimizer keeps them by itself.
//   from 2.12   torch replaces each option that still has its constructor's value by the optimizer's default
//               (a weight decay of 0 in a group without decay!). For option types that torch does not know
//               (LAMB's) it replaces all of them.
// Requires: the last groups.size() groups of the optimizer are those groups.
inline void keep_options(torch::optim::Optimizer& optimizer,
                         const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  auto& kept = optimizer.param_groups();
  const std::size_t before = kept.size() - groups.size();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].has_options()) kept[before + g].set_options(groups[g].options().clone());
  }
}

// Before a capture: lets the graph's replays continue to draw from this generator (at::cuda::CUDAGraph).
//   up to 2.11  the generator must be registered with the graph.
//   2.15        a generator that is used during a capture registers itself; the call does not exist.
template <class Graph>
void register_generator(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); }) {
    graph.register_generator_state(generator);
  }
}

}}}  // namespace holdfast::v0_2::compat
