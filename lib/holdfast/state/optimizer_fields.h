// What a checkpoint has to know of a kind of optimizer: its options, the slots of its parameters, and its
// counts of updates. Saving, loading and sharding are written over this. A kind is described once:
//
//   struct LambFields {
//     static constexpr char kName[] = "LAMB";  // in checkpoints; further constants: see kKindOf
//     using Options = LambOptions;
//     using State = LambParamState;
//     static void options(Options& of, const auto& visit) { visit("lr", of.lr()); … }
//     static void slots(State& of, const auto& visit) { visit("exp_avg", of.exp_avg()); … }
//   };
//
// A Holdfast optimizer's kind() returns kKindOf<LambFields>. Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <variant>

#include "holdfast/snapshot/attributes.h"
#include "holdfast/state/own_optimizer.h"

namespace holdfast { inline namespace v0_2 {

using OptionField = std::variant<double*, bool*, std::int64_t*, std::tuple<double, double>*,
                                 std::optional<std::int64_t>*, std::optional<std::string>*>;
using VisitOption = std::function<void(const char* name, OptionField field)>;
// The tensor may be undefined: then the slot is absent.
using VisitSlot = std::function<void(const char* name, at::Tensor& tensor)>;

struct OptimizerKind {
  const char* name;
  bool in_shares;  // updates go element by element, or ask for numbers of whole tensors (ShardedOptimizer)
  bool one_state;  // for all parameters together, as LBFGS: it has no slots, and is saved by its own code
  // Options that older checkpoints lack: saved only if they differ from those of plain().
  std::span<const char* const> later;
  std::unique_ptr<torch::optim::OptimizerOptions> (*plain)();
  // False: these are the options of another kind.
  bool (*options)(torch::optim::OptimizerOptions&, const VisitOption&);
  bool (*is_state)(const torch::optim::OptimizerParamState&);
  std::unique_ptr<torch::optim::OptimizerParamState> (*make_state)();
  void (*slots)(torch::optim::OptimizerParamState&, const VisitSlot&);
  // Number of updates of one parameter. 0 if the optimizer does not count them.
  std::int64_t (*step)(const torch::optim::OptimizerParamState&);
  void (*set_step)(torch::optim::OptimizerParamState&, std::int64_t);
};

// The kind of `optimizer`, by its exact type or as a Holdfast optimizer describes itself. Null for any other:
// a derived class may hold state that OptimizerState would lose.
const OptimizerKind* kind_of(const torch::optim::Optimizer& optimizer);
std::set<const OptimizerKind*> torch_kinds();
// Of exactly this class of torch::optim; null if there is none.
const OptimizerKind* torch_kind(const std::type_info& of_class);
const OptimizerKind* torch_kind_of_state(const torch::optim::OptimizerParamState& state);

namespace internal {

// visit(name, field) for each option. UsageError if they are the options of another optimizer.
void visit_options(const OptimizerKind& kind, torch::optim::OptimizerOptions& options,
                   const std::string& optimizer, const VisitOption& visit);
Attributes values_of(const OptimizerKind& kind, torch::optim::OptimizerOptions& options,
                     const std::string& optimizer);
AttributeValue to_value(const OptionField& field);
// Returns false if the value has another type.
bool from_value(const AttributeValue& value, const OptionField& field);

// Null: there is none, or (has_state()) one of another class.
torch::optim::OptimizerParamState* state_of(const torch::optim::Optimizer& optimizer,
                                            const at::Tensor& parameter, const OptimizerKind& kind);
bool has_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
// LBFGS keeps its one state under the first parameter of its one group.
const at::Tensor& first_parameter(const torch::optim::Optimizer& optimizer);

template <class Fields>
struct KindFunctions {
  using Options = typename Fields::Options;
  using State = typename Fields::State;

  static bool options(torch::optim::OptimizerOptions& of, const VisitOption& visit) {
    auto* const typed = dynamic_cast<Options*>(&of);
    if (typed == nullptr) return false;
    Fields::options(*typed, [&](const char* name, auto& field) { visit(name, &field); });
    return true;
  }
  static std::unique_ptr<torch::optim::OptimizerOptions> plain() {
    if constexpr (requires { Fields::kLater; }) return std::make_unique<Options>();
    return nullptr;
  }
  static bool is_state(const torch::optim::OptimizerParamState& of) {
    return dynamic_cast<const State*>(&of) != nullptr;
  }
  static std::unique_ptr<torch::optim::OptimizerParamState> make_state() { return std::make_unique<State>(); }
  static void slots(torch::optim::OptimizerParamState& of, const VisitSlot& visit) {
    if constexpr (requires(State & state) { Fields::slots(state, visit); }) {
      Fields::slots(static_cast<State&>(of), visit);
    }
  }
  static std::int64_t step(const torch::optim::OptimizerParamState& of) {
    if constexpr (requires(const State& state) { state.step(); }) return static_cast<const State&>(of).step();
    return 0;
  }
  static void set_step(torch::optim::OptimizerParamState& of, std::int64_t step) {
    if constexpr (requires(State & state) { state.step(step); }) static_cast<State&>(of).step(step);
  }
  static constexpr bool in_shares() {
    if constexpr (requires { Fields::kInShares; }) return Fields::kInShares;
    return false;
  }
  static constexpr bool one_state() {
    if constexpr (requires { Fields::kOneState; }) return Fields::kOneState;
    return false;
  }
  static constexpr std::span<const char* const> later() {
    if constexpr (requires { Fields::kLater; }) return Fields::kLater;
    return {};
  }
};

}  // namespace internal

template <class Fields, class Of = internal::KindFunctions<Fields>>
inline constexpr OptimizerKind kKindOf{.name = Fields::kName,
                                       .in_shares = Of::in_shares(),
                                       .one_state = Of::one_state(),
                                       .later = Of::later(),
                                       .plain = &Of::plain,
                                       .options = &Of::options,
                                       .is_state = &Of::is_state,
                                       .make_state = &Of::make_state,
                                       .slots = &Of::slots,
                                       .step = &Of::step,
                                       .set_step = &Of::set_step};

}}  // namespace holdfast::v0_2
