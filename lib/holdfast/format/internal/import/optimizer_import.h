// An optimizer of Python's, as its state_dict() has it, becomes the state of the same optimizer of a
// checkpoint: slots, counts of updates, and the present values of options. It is the table of
// torch_training_state(), read the other way.
//
// Errors: PickleRefusal, which names what the checkpoint's optimizer has no place for. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/internal/import/import_draft.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct SlotOfKind {
  std::string_view name;
  std::string_view option = {};  // the slot is there while this option is on; empty: always
};
// What state/optimizer_fields.h says, without Torch; a test compares the two.
struct KindOfOptimizer {
  std::string_view type;
  bool counts = true;  // PyTorch's SGD counts no updates
  std::array<SlotOfKind, 3> slots = {};
};
std::span<const KindOfOptimizer> kinds_of_optimizers();  // all but LBFGS

class OptimizerImport {
 public:
  // `optimizer`: its name. `modules`: names of parts that hold parameters.
  OptimizerImport(ImportDraft& draft, std::string optimizer, const std::vector<std::string>& modules);

  void take(const PickleValue& state_dict);
  std::string what() const;  // "optimizer (AdamW, 8 slots)"

 private:
  using States = std::unordered_map<std::int64_t, const PickleValue*>;

  [[noreturn]] void refuse_it(const std::string& reason) const;
  std::string prefix_of(std::size_t group) const;
  void find_owners(const std::vector<std::string>& modules);
  std::vector<TensorSpec> wanted_slot(const std::string& slot, const std::string& parameter) const;
  void drop_slots();
  void forget_strides();
  States states_of(const PickleValue& dict) const;
  std::vector<std::int64_t> numbers_of(std::size_t group, const PickleValue& dict) const;
  void take_options(std::size_t group, const PickleValue& dict);
  bool take_own_option(std::size_t group, const std::string& option, const PickleValue& value);
  const AttributeValue* present(std::size_t group, const std::string& option) const;
  bool is_on(std::size_t group, std::string_view option) const;
  void take_states(const std::vector<std::vector<std::int64_t>>& numbers, const States& states);
  std::int64_t take_state(std::size_t group, const std::string& parameter, const PickleValue& state);
  bool stays_stateless(std::size_t group, std::size_t position) const;
  void take_lbfgs(const std::vector<std::vector<std::int64_t>>& numbers, const States& states);
  void take_vector(const std::string& field, const PickleValue* value, std::vector<std::string>& defined);
  void take_list(const std::string& field, const PickleValue* value);
  std::vector<TensorSpec> wanted_of_lbfgs(const std::string& field) const;
  void take_slot(const std::string& name, const PickleValue& value, const std::vector<TensorSpec>& wanted);
  void take_others(const PickleValue& dict);

  ImportDraft& draft_;
  std::string name_;
  std::string type_;
  std::vector<std::vector<std::string>> groups_;  // names of parameters
  // By parameter: what its slots are like. Empty: not known here. Several: two modules have that name.
  std::unordered_map<std::string, std::vector<TensorSpec>> parameters_;
  std::size_t slots_ = 0;
};

// The names of a checkpoint's optimizers. Their slots may come only with the first step.
std::set<std::string> optimizers_of(const Attributes& attributes);

}}}  // namespace holdfast::v0_2::internal
