// The inside of a TrainState: what was added, and one look at all of it. Three sources: train_state.cc
// (composition, staging), train_state_check.cc (would a checkpoint fit), train_state_load.cc.
//
// Threads: the training thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/state/internal/cuda_tensors.h"
#include "holdfast/state/module_state.h"
#include "holdfast/state/optimizer_state.h"
#include "holdfast/state/rng_state.h"
#include "holdfast/state/train_state.h"

namespace holdfast::inline v1 {

struct TrainState::State {
  struct Part {
    std::string name;
    std::unique_ptr<Component> component;
  };
  // All attributes as they are now, and which of them are options.
  struct Look {
    Attributes attributes;
    std::vector<std::string> options;
  };

  void check_new_name(const std::string& name) const;
  bool has_module(std::string_view name) const;
  bool may_be_new(std::string_view part) const;  // "component parallel"
  ModuleInventory look();
  Look look_at_attributes(const ModuleInventory& inventory);
  // Parameters, buffers and slots, with the time to copy them.
  void visit_tensors(
      const std::function<void(const std::string& name, const at::Tensor&, holdfast::Part)>& visit);
  std::unique_ptr<LateCopy> prepare(const ImageLayout& layout, std::span<std::byte> image, NextUpdate update);
  // Do tensors keep this program's strides?
  bool own_layout(const Overrides& overrides) const;
  std::vector<NamedGenerator> streams() const;
  std::vector<std::string> parts() const;  // "module model"

  std::vector<NamedModule> modules;
  std::vector<OptimizerState> optimizers;
  std::vector<Part> components;
  std::vector<NamedGenerator> generators;  // private ones
  std::vector<std::pair<std::string, AttributeValue>> options;
  std::vector<std::string> layout_options;        // of these
  std::set<std::string> early;                    // tensors that changed when they should have stood still
  std::set<std::string, std::less<>> replicated;  // tensors, when last described
  bool in_cuda = false;                           // some tensor was, when last described
  bool components_in_cuda = false;                // some component's was, when last copied
  std::shared_ptr<internal::CudaStaging> cuda;    // made with the first save from a device
  std::int64_t step = 0;
  std::int64_t skipped = 0;  // of these steps
  Cursor cursor;
};

namespace internal {

// The full names of recorded options that `overrides` name, out of `options`.
std::vector<std::string> overridden(const std::vector<std::string>& options, const Overrides& overrides);

// What in the recorded model tensors does not fit, one text each. `strides`: compare those as well, where
// they cannot be restored.
std::vector<std::string> module_differences(std::span<const NamedModule> modules,
                                            const ModuleInventory& inventory,
                                            std::span<const TensorSpec> tensors, const Attributes& recorded,
                                            bool strides);
// As recorded; those of a contiguous tensor where nothing is.
std::vector<std::int64_t> recorded_strides(const ModuleTensor& item, const Attributes& recorded);

// "a; b; c and 12 more"
std::string joined(const std::vector<std::string>& texts, std::size_t most);

}  // namespace internal
}  // namespace holdfast::inline v1
