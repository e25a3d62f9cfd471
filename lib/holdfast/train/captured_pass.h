// Records forward and backward of a micro-batch as device graphs (device_graph.h) and replays them. This
// saves time if launching a step's kernels takes longer than computing them. holdfast::Step does this with
// StepOptions::graph. Update, clipping and loss scaling stay outside, so rates, skipped updates and
// before_update work as before.
//
// If the device cannot do it or the recording fails, one warning gives the reason, and all continues without
// graphs. With deterministic kernels a replay has the bits of an ordinary pass. Nothing here is state: a
// resumed run records again.
//
// Requires: see CapturedPass::Pass; a wrong loss function corrupts memory. Errors: UsageError of the
// constructor. Threads: the training thread, always the same one.
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

#include "holdfast/base/export.h"
#include "holdfast/data/loader.h"
#include "holdfast/train/device_graph.h"

namespace torch::optim {
class Optimizer;
}

namespace holdfast { inline namespace v0_2 {

struct GraphOptions {
  // Ordinary micro-batches of one shape before a recording. Three, because allocator, cuDNN's benchmark mode
  // and lazy initialisation settle in them.
  int warm_up = 3;
  // Private generators on the device that the loss function draws from.
  std::vector<at::Generator> generators = {};
  // Empty: CUDA's.
  std::shared_ptr<GraphDevice> device = {};
};

// The first `warm_up` micro-batches of a shape are ordinary ones on a separate stream. Then one is recorded
// and replayed. Batches are copied to a fixed place, and gradients stay where the recording put them. With
// accumulation there are two graphs: the first micro-batch of an update overwrites the gradients, the others
// add to them.
//
// A batch of another shape (a smaller last one) is an ordinary pass. A new recording is made for a shape that
// has come warm_up times in a row, and if parameters move or become trainable or frozen. A warning is logged
// if 50 micro-batches beyond a warm-up found no graph, because shapes change too often.
class HOLDFAST_EXPORT CapturedPass {
 public:
  // UsageError for a warm-up below 1. The optimizer must outlive this object.
  CapturedPass(torch::optim::Optimizer& optimizer, GraphOptions options);

  // Forward and backward: adds to the parameters' gradients and returns the detached loss. It must meet the
  // requirements of device_graph.h. It depends only on the batch's tensors (not on its epoch or cursor), does
  // not communicate, and does the same each time. Anything else that changes it needs forget(): train() or
  // eval(), a dropout rate, a frozen buffer.
  //
  // A replay writes to fixed addresses. This class watches only the optimizer's parameters and their
  // gradients. All other tensors that the loss function uses must stay where they were recorded: buffers, and
  // leaves of another optimizer with their gradients. Replacing one without forget() corrupts memory
  // (zero_grad() that sets to none, a new running_mean).
  using Pass = std::function<at::Tensor(const Batch& batch)>;
  // `first`: the first micro-batch of an update; old gradients are no longer needed. `pass` is called,
  // recorded or replayed; each call passes the same one, or one that does the same. The returned loss
  // survives the next micro-batch.
  at::Tensor run(const Batch& batch, bool first, const Pass& pass);

  // True if the last micro-batch was a replay.
  bool replayed() const { return replayed_; }
  // Discards the recordings; warms up and records again.
  void forget();

 private:
  struct Layout {  // of one tensor of a batch
    std::vector<std::int64_t> sizes, strides;
    at::ScalarType type = at::ScalarType::Undefined;
    std::size_t first = 0;  // index of the first equal tensor: a loader's inputs are one of its fields
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
  // All tensors of a batch in a fixed order.
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
  bool began_replayed_ = false;  // the present update started with a replay: its gradients are the recorded
                                 // ones

  std::vector<Layout> layout_;  // of the last batch
  int in_a_row_ = 0;            // micro-batches of that layout in a row
  int without_ = 0;             // micro-batches since the last replay

  // The recording.
  std::array<Recorded, 2> recorded_;  // of an update's first micro-batch, and of the others
  Batch inputs_;
  std::vector<Layout> inputs_layout_;  // empty: nothing is recorded
  std::vector<Place> places_;
  std::vector<at::Tensor> gradients_;
};

}}  // namespace holdfast::v0_2
