// The state that is saved: copies of the example's ResNet-50 with momentum, so shapes are the example's at
// any size. The first copy can train, on one fixed batch. On a GPU the host is at most one step ahead of it, as in a
// trainer that reads its results one step late, and the update is fused.
//
// Threads: one thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "examples/models/resnet.h"
#include "holdfast/state/train_state.h"

namespace holdfast::bench {

struct StateSpec {
  std::string name;
  int copies = 1;
  int width = 64;  // of the network: 64 is ResNet-50
  bool operator==(const StateSpec&) const = default;
};

// "resnet50", "2gb" or "tiny" (for tests). UsageError for other names.
StateSpec state_named(const std::string& name);

struct Workload {
  int batch = 64;
  int pixels = 32;
  at::Device device = at::kCPU;
  bool half = false;  // FP16 under autocast, in channels_last; without loss scaling
};

class TrainingState {
 public:
  explicit TrainingState(const StateSpec& spec, const Workload& workload = {});
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  TrainState& source() { return state_; }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t tensors() const { return tensors_.size(); }
  // "2.07 GB, 5291 tensors".
  std::string words() const;
  // All tensors with their names in the file, without random streams.
  const std::vector<std::pair<std::string, at::Tensor>>& named_tensors() const { return tensors_; }
  // Seconds of one single-threaded memcpy of all tensors.
  double copy_once(std::byte* to) const;

  // One pass of the first copy; update() is its optimizer step.
  void forward_backward();
  void update();
  void wait_for_device() const;
  // Frees the gradients, which are not part of the state.
  void drop_gradients();

  struct Copy {
    ResNet net{nullptr};
    std::unique_ptr<torch::optim::SGD> optimizer;
  };
  std::vector<Copy>& copies() { return copies_; }

 private:
  std::vector<Copy> copies_;
  TrainState state_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::uint64_t bytes_ = 0;
  at::Tensor images_;
  at::Tensor labels_;
  Workload workload_;
  std::optional<c10::Event> last_pass_;
};

}  // namespace holdfast::bench
