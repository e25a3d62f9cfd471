// Where the releases of LibTorch differ that this library is built with, 2.7.1 to 2.15. All else is written
// once for all of them, but for c10d's differences (distributed/internal/c10d_compat.h) and two that only a
// class derived from CUDAGraph sees (train/device_graph.cc). An entry says which releases it is for and what
// happens without it; it works in all of them and asks for no version, so that nobody has to guess which code
// a build has.
//
// Looked at and alike in all of them: the fused and foreach kernels' arguments, autocast by device type, the
// two setters of TF32 (precision/precision.cc says why it uses those), generators, storages, streams.
// tests/run --libtorch VERSION builds and tests with another release; --nightly does so with 2.7.1 and the
// newest.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Generator.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <vector>

namespace holdfast::inline v1::compat {

// Gives the groups of an optimizer that was made from `groups` exactly the options that those bring.
//   up to 2.11  they have them.
//   from 2.12   torch takes the optimizer's defaults for every option of a group that is as a constructor
//               leaves it (a weight decay of 0 in a group without decay!), and for all of them where it does
//               not know the options' type (LAMB's).
// Requires: the last groups.size() groups of the optimizer are those.
inline void keep_options(torch::optim::Optimizer& optimizer,
                         const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  auto& kept = optimizer.param_groups();
  const std::size_t before = kept.size() - groups.size();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].has_options()) kept[before + g].set_options(groups[g].options().clone());
  }
}

// Before a capture: the graph's replays draw on from this generator (at::cuda::CUDAGraph).
//   up to 2.11  it must be registered with the graph.
//   2.15        one that is drawn from while a stream is captured registers itself, and the call is gone.
template <class Graph>
void register_generator(Graph& graph, const at::Generator& generator) {
  if constexpr (requires { graph.register_generator_state(generator); }) {
    graph.register_generator_state(generator);
  }
}

}  // namespace holdfast::inline v1::compat
