// The state of one optimizer: torch::optim's SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS, or one of
// holdfast/optim. It holds every option of every group, the names of each group's parameters, and the slots
// by parameter name. An absent slot is not stored; it differs from a slot of zeros.
//
// Options as they were at add() are the user's choice: resume compares them and never restores them. Later
// changes, by a schedule or the loop, are state and are restored. docs/training_state.md has the names.
//
// Errors: UsageError for an unknown type of optimizer, including classes derived from a known one (they may
// have more state); for parameters of no added module; for an optimizer whose slots a fused one has taken
// over. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/snapshot.h"
#include "holdfast/state/module_options.h"
#include "holdfast/state/module_state.h"

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace holdfast { inline namespace v0_2 {

struct OptimizerKind;  // optimizer_fields.h

struct SlotTensor {
  std::string name;  // "optimizer/exp_avg/fc.weight"
  at::Tensor tensor;
  bool may_change_shape = false;  // as its parameter
};

// What one optimizer holds at one moment.
struct OptimizerInventory {
  std::vector<std::vector<std::string>> parameters;  // names of the parameters of each group
  std::vector<SlotTensor> slots;
  std::vector<std::string> misfits;  // what a load would refuse or lose of them, one text each
};

class HOLDFAST_EXPORT OptimizerState {
 public:
  OptimizerState(std::string name, torch::optim::Optimizer& optimizer, OptimizerOptions options = {});

  using Parameters = std::vector<std::vector<at::Tensor>>;  // of each group

  const std::string& name() const { return name_; }
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }
  bool may_append_groups() const { return options_.may_append_groups; }
  // One state for all parameters together, as LBFGS has.
  bool one_state() const;

  // True if a group has another learning rate than was chosen for it.
  bool rate_changed() const;

  // Also records the options of new groups as chosen.
  OptimizerInventory take_inventory(const ModuleInventory& modules);
  // Requires the inventory of this moment. Appends the full names of options to `options`.
  void put_attributes(const OptimizerInventory& inventory, Attributes& out,
                      std::vector<std::string>& options) const;

  // Parameter groups that the program lacks, or (negative) that the checkpoint lacks.
  std::ptrdiff_t groups_missing(const Attributes& recorded) const;
  // True if this is the full name of an option of a group that a load appends.
  bool appends(const std::string& option) const;
  // Describes what in these tensors and attributes cannot be loaded, one text each. TrainState compares
  // options.
  std::vector<std::string> differences(const ModuleInventory& modules, std::span<const TensorSpec> tensors,
                                       const Attributes& recorded) const;

  // A checkpoint's slots as new tensors, ready to replace the present ones. Requires empty differences().
  struct Loaded {
    Parameters appended;  // parameters of the groups that install() appends
    std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states;
  };
  // `own_layout`: slots get the strides of their parameters instead of the recorded strides.
  Loaded prepare(const ModuleInventory& modules, const Snapshot& snapshot, bool own_layout) const;
  // Makes the new tensor of a recorded slot, and has it filled.
  using Restore = std::function<at::Tensor(const TensorSpec& spec, const at::Tensor& parameter)>;
  // Throws the RefusedError of a load. Without `restore` the tensors stay undefined.
  Loaded prepare(const ModuleInventory& modules, std::span<const TensorSpec> tensors,
                 const Attributes& recorded, const Restore& restore) const;
  // Cannot fail. Replaces all slots, drops slots that the checkpoint lacks, and restores options that had
  // changed since they were chosen. `overridden`: full names of options that keep this program's values.
  void install(Loaded loaded, const Attributes& recorded, const std::vector<std::string>& overridden);

 private:
  using Groups = std::vector<std::vector<std::string>>;
  // `appended`: groups that a load appends.
  Groups group_names(const ModuleInventory& modules, const Parameters& appended) const;
  // Throws RefusedError for names that belong to no free parameter.
  Parameters appended_groups(const ModuleInventory& modules, const Attributes& recorded) const;
  std::unique_ptr<torch::optim::OptimizerOptions> recorded_options(std::size_t group,
                                                                   const Attributes& recorded) const;
  void list_slots(const ModuleInventory& modules, OptimizerInventory& inventory) const;
  std::string group_prefix(std::size_t group) const;

  std::string name_;
  torch::optim::Optimizer* optimizer_;
  const OptimizerKind* kind_;
  OptimizerOptions options_;
  std::vector<Attributes> chosen_;  // options of each group
};

}}  // namespace holdfast::v0_2
