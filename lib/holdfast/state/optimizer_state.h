// The state of one torch::optim optimizer (SGD, Adam, AdamW, RMSprop, Adagrad, LBFGS) or one of
// holdfast/optim, which keep theirs as torch's do (own_optimizer.h), or LAMB's: every option of every
// parameter group, the parameters of each group by name, the slots by parameter name. A slot that is not
// there is not stored, which is not the same as a slot of zeros.
//
// Options. What a group's options were when TrainState first saw them (add(), or the first look after
// add_param_group) is what the user chose: declared as options, compared on resume, never restored. What a
// schedule or the loop has changed since then is state, and restored, except under an override: then the
// value that the program has set stands. So a new learning rate on the command line is noticed, and a
// learning rate that decays over the run is not mistaken for one.
//
//   <name>.type                      text: "AdamW"
//   <name>.group.<g>.parameters      texts, in order
//   <name>.group.<g>.<option>        as chosen (an option); LAMB's variants only where one was chosen
//   <name>.group.<g>.now.<option>    as it is now; only where that differs
//   <name>.group.<g>.steps           integers, one a parameter: updates counted; -1: no slots yet
//   <name>.strides.<slot>/<param>    integers; only where not those of a contiguous tensor
//   <name>.maximize                  true (an option); only of our own, and only where it is
//   environment.<name>.kernels       a record: "fused" (holdfast/optim) or "torch::optim", where their bits
//   differ;
//                                    another one on resume withdraws the bit-exact promise, aloud
//   <name>.lbfgs.…                   LBFGS's counters and the lengths of its history
//   tensors                          <name>/<slot>/<param>; LBFGS: <name>/lbfgs/<field>
//
// A parameter is named as its module names it, with the module's name and a dot before it when the optimizer
// trains several modules.
//
// Errors: UsageError for another type of optimizer (one derived from a known one included, as it may have
// state of its own), for parameters that belong to no added module, and for an optimizer whose slots one of
// holdfast/optim has taken over.
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/snapshot/snapshot.h"
#include "holdfast/state/module_state.h"

namespace torch::optim {
class Optimizer;
class OptimizerParamState;
}  // namespace torch::optim

namespace holdfast::inline v1 {

struct SlotTensor {
  std::string name;  // "optimizer/exp_avg/fc.weight"
  at::Tensor tensor;
};

class OptimizerState {
 public:
  OptimizerState(std::string name, torch::optim::Optimizer& optimizer);

  const std::string& name() const { return name_; }
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

  // Takes the options of groups not seen before as chosen, and checks that all parameters have names.
  void look(const ModuleInventory& modules);
  std::vector<SlotTensor> slots(const ModuleInventory& modules) const;
  // Requires look(). Full names of options are appended to `options`.
  void put_attributes(const ModuleInventory& modules, Attributes& out,
                      std::vector<std::string>& options) const;

  // What in these tensors and attributes cannot be loaded, one text each; options are compared elsewhere.
  std::vector<std::string> differences(const ModuleInventory& modules, std::span<const TensorSpec> tensors,
                                       const Attributes& recorded) const;

  // A checkpoint's slots as new tensors, ready to replace the present ones. Requires no differences().
  struct Loaded {
    std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states;
  };
  // `own_layout`: slots get the strides of their parameters, not the recorded ones.
  Loaded prepare(const ModuleInventory& modules, const Snapshot& snapshot, bool own_layout) const;
  // Cannot fail: replaces all slots, stale ones are gone, and sets what had changed since it was chosen.
  // `overridden` are full names of options.
  void commit(Loaded loaded, const Attributes& recorded, const std::vector<std::string>& overridden);

 private:
  using Groups = std::vector<std::vector<std::string>>;  // names of the parameters of each group
  Groups group_names(const ModuleInventory& modules) const;
  std::string group_prefix(std::size_t group) const;
  // Without a snapshot: only what RefusedError it would throw; the tensors stay undefined.
  Loaded build(const ModuleInventory& modules, std::span<const TensorSpec> tensors,
               const Attributes& recorded, const Snapshot* snapshot, bool own_layout) const;

  std::string name_;
  torch::optim::Optimizer* optimizer_;
  std::string type_;
  std::vector<Attributes> chosen_;  // options of each group
};

}  // namespace holdfast::inline v1
