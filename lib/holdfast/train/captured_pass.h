// Forward and backward of a micro-batch, recorded as graphs of the device (device_graph.h) and replayed:
// where a step is hundreds of small kernels, launching them takes longer than computing them. holdfast::Step
// does this with StepOptions::graph; the update, clipping and loss scaling stay outside, a few launches, so
// that rates, skipped updates and before_update work as without.
//
// The first `warm_up` micro-batches of a shape are ordinary ones, made on a stream of their own; then one is
// recorded and replayed. Batches are copied to a place that stays; gradients stay where the recording put
// them. With accumulation there are two graphs: the first micro-batch of an update overwrites the gradients,
// each further one adds to them. A batch of another shape (a smaller last one) is computed as without graphs;
// the recording is made anew for shapes that have come warm_up times in a row, and when parameters lie
// elsewhere than before, or have become trainable or frozen.
//
// Where there is no such device, or the recording fails, one warning says why, and all goes on without;
// another says it when shapes change so often that 50 micro-batches beyond a warm-up found no graph. With
// deterministic kernels a replay's bits are those of the ordinary pass. Nothing here is state: a resumed run
// warms up and records again.
//
// Requires of the loss function what device_graph.h asks of work, and beyond it: it depends on the batch's
// tensors alone (not on its epoch or cursor), does not communicate, and does the same each time. What changes
// it otherwise, such as train() or eval() of a part, a rate of dropout, a frozen buffer, needs forget().
// LibTorch's own random layers draw as usual; a private generator is named in GraphOptions. A replay writes
// to bare addresses, and only the optimizer's parameters and their gradients are looked after: every other
// tensor that the loss function reads or writes (buffers, leaves of another optimizer and their gradients)
// must stay where it was recorded. Replacing one (zero_grad() that sets to none, a new running_mean) without
// forget() corrupts memory. Threads: the training thread, always the same.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/data/loader.h"
#include "holdfast/train/device_graph.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast::inline v1 {

struct GraphOptions {
  int warm_up = 3;  // micro-batches; with cuDNN's benchmark mode it searches in them
  std::vector<at::Generator> generators = {};  // private ones of the device that the loss function draws from
  std::shared_ptr<GraphDevice> device = {};    // default: CUDA's
};

class CapturedPass {
 public:
  // UsageError for a warm-up of less than 1. The optimizer outlives this.
  CapturedPass(torch::optim::Optimizer& optimizer, GraphOptions options);

  // Forward and backward: adds to the parameters' gradients, returns the loss, detached.
  using Pass = std::function<at::Tensor(const Batch& batch)>;
  // `first`: of an update; old gradients are done with. `pass` is called, recorded or replayed: the same one
  // at each call, or one that does the same. The loss stays as it is when the next micro-batch is run.
  at::Tensor run(const Batch& batch, bool first, const Pass& pass);

  // Was the last micro-batch a replay?
  bool replayed() const { return replayed_; }
  // Warms up and records again.
  void forget();

 private:
  struct Layout {  // of one tensor of a batch
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type = at::ScalarType::Undefined;
    std::size_t first = 0;  // where the same tensor comes first: a loader's inputs are one of its fields
    bool operator==(const Layout&) const = default;
  };
  struct Place {  // of one parameter
    const at::TensorImpl* parameter;
    const void* memory;
    bool trained;
    bool operator==(const Place&) const = default;
  };
  struct Recorded {
    std::unique_ptr<DeviceGraph> graph;
    at::Tensor loss;
  };
  // All tensors of a batch, in one order.
  static std::vector<const at::Tensor*> tensors_of(const Batch& batch);
  static std::vector<Layout> layout_of(const Batch& batch);
  std::vector<Place> places() const;
  std::vector<at::Tensor> gradients() const;
  void put_back(const std::vector<at::Tensor>& gradients);
  bool ready();
  void give_up(const std::string& why);
  at::Tensor ordinary(const Batch& batch, const Pass& pass);
  void record(const Batch& batch, bool first, const Pass& pass);
  void make_inputs(const Batch& batch);
  void copy_inputs(const Batch& batch);
  at::Tensor replay(const Batch& batch, const Recorded& recorded);

  torch::optim::Optimizer* optimizer_;
  GraphOptions options_;
  bool given_up_ = false;
  bool replayed_ = false;
  bool began_replayed_ = false;  // the update under way: its gradients are the recorded ones

  std::vector<Layout> layout_;  // of the last batch,
  int in_a_row_ = 0;            // and how many there were
  int without_ = 0;             // micro-batches since the last replay

  // What was recorded.
  std::array<Recorded, 2> recorded_;  // of an update's first micro-batch; of the others
  Batch inputs_;
  std::vector<Layout> inputs_layout_;  // empty: nothing is recorded
  std::vector<Place> places_;
  std::vector<at::Tensor> gradients_;
};

}  // namespace holdfast::inline v1
