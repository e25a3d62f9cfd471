// The one list of the fields of every torch::optim optimizer: all options, per-parameter slots, and step
// counters. Saving, loading and the fused optimizers are written over these lists.
//
// Errors: options_as() throws UsageError. Threads: free functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/state/lamb_options.h"
#include "holdfast/state/own_optimizer.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// visit(name, field&) for each option.
template <class V>
void visit_options(torch::optim::SGDOptions& options, V&& visit) {
  visit("lr", options.lr());
  visit("momentum", options.momentum());
  visit("dampening", options.dampening());
  visit("weight_decay", options.weight_decay());
  visit("nesterov", options.nesterov());
}
template <class Options, class V>
requires(std::is_same_v<Options, torch::optim::AdamOptions> ||
         std::is_same_v<Options, torch::optim::AdamWOptions>) void visit_options(Options& options,
                                                                                 V&& visit) {
  visit("lr", options.lr());
  visit("betas", options.betas());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("amsgrad", options.amsgrad());
}
template <class V>
void visit_options(LambOptions& options, V&& visit) {
  visit("lr", options.lr());
  visit("betas", options.betas());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("adapt_all", options.adapt_all());
  visit("max_grad_norm", options.max_grad_norm());
  visit("grad_averaging", options.grad_averaging());
  visit("bias_correction", options.bias_correction());
  visit("decoupled", options.decoupled());
  visit("most_norm", options.most_norm());
}
template <class V>
void visit_options(torch::optim::RMSpropOptions& options, V&& visit) {
  visit("lr", options.lr());
  visit("alpha", options.alpha());
  visit("eps", options.eps());
  visit("weight_decay", options.weight_decay());
  visit("momentum", options.momentum());
  visit("centered", options.centered());
}
template <class V>
void visit_options(torch::optim::AdagradOptions& options, V&& visit) {
  visit("lr", options.lr());
  visit("lr_decay", options.lr_decay());
  visit("weight_decay", options.weight_decay());
  visit("initial_accumulator_value", options.initial_accumulator_value());
  visit("eps", options.eps());
}
template <class V>
void visit_options(torch::optim::LBFGSOptions& options, V&& visit) {
  visit("lr", options.lr());
  visit("max_iter", options.max_iter());
  visit("max_eval", options.max_eval());
  visit("tolerance_grad", options.tolerance_grad());
  visit("tolerance_change", options.tolerance_change());
  visit("history_size", options.history_size());
  visit("line_search_fn", options.line_search_fn());
}

// visit(name, tensor&) for each slot. The tensor may be undefined: then the slot is absent.
template <class V>
void visit_slots(torch::optim::SGDParamState& state, V&& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}
template <class State, class V>
requires(std::is_same_v<State, torch::optim::AdamParamState> ||
         std::is_same_v<State, torch::optim::AdamWParamState>) void visit_slots(State& state, V&& visit) {
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}
template <class V>
void visit_slots(LambParamState& state, V&& visit) {
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
}
template <class V>
void visit_slots(torch::optim::RMSpropParamState& state, V&& visit) {
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}
template <class V>
void visit_slots(torch::optim::AdagradParamState& state, V&& visit) {
  visit("sum", state.sum());
}

// Number of updates of one parameter. 0 if the optimizer does not count them.
template <class State>
std::int64_t step_of(const State& state) {
  if constexpr (requires { state.step(); }) {
    return state.step();
  } else {
    return 0;
  }
}
template <class State>
void set_step(State& state, std::int64_t step) {
  if constexpr (requires { state.step(); }) state.step(step);
}

// Converts options to attributes and back.
inline constexpr char kNone[] = "none";  // an option without a value

inline AttributeValue to_value(double field) { return field; }
inline AttributeValue to_value(bool field) { return field; }
inline AttributeValue to_value(std::int64_t field) { return field; }
inline AttributeValue to_value(const std::tuple<double, double>& field) {
  return std::vector<double>{std::get<0>(field), std::get<1>(field)};
}
inline AttributeValue to_value(const std::optional<std::int64_t>& field) {
  if (field) return *field;
  return std::string(kNone);
}
inline AttributeValue to_value(const std::optional<std::string>& field) { return field.value_or(kNone); }

// Returns false if the value has another type.
template <class T>
bool from_value(const AttributeValue& value, T& field) {
  const T* const found = std::get_if<T>(&value);
  if (found) field = *found;
  return found != nullptr;
}
inline bool from_value(const AttributeValue& value, std::tuple<double, double>& field) {
  const auto* const found = std::get_if<std::vector<double>>(&value);
  if (!found || found->size() != 2) return false;
  field = {(*found)[0], (*found)[1]};
  return true;
}
template <class T>
bool from_value(const AttributeValue& value, std::optional<T>& field) {
  const auto* const text = std::get_if<std::string>(&value);
  const T* const found = std::get_if<T>(&value);
  if (text && *text == kNone) {
    field.reset();
  } else if (found) {
    field = *found;
  }
  return found != nullptr || (text && *text == kNone);
}

template <class Options>
Options& options_as(torch::optim::OptimizerOptions& options, const std::string& name) {
  if (auto* const typed = dynamic_cast<Options*>(&options)) return *typed;
  throw UsageError("a parameter group of optimizer '" + name + "' has the options of another optimizer");
}

template <class State>
State* state_of(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& states = optimizer.state();
  const auto found = states.find(parameter.unsafeGetTensorImpl());
  if (found == states.end() || !found->second) return nullptr;
  return dynamic_cast<State*>(found->second.get());
}

// True also if the state is of another class.
inline bool has_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found != optimizer.state().end() && found->second;
}

// LBFGS keeps its one state under the first parameter of its one group.
inline const at::Tensor& first_parameter(const torch::optim::Optimizer& optimizer) {
  return optimizer.param_groups().front().params().front();
}

template <class OptionsType, class StateType>
struct OptimizerKind {
  using Options = OptionsType;
  using State = StateType;
  static constexpr bool kPerParameter = !std::is_same_v<StateType, torch::optim::LBFGSParamState>;
};

// Calls f(OptimizerKind, name) for the exact type of `optimizer`, or for the declared kind of a Holdfast
// optimizer. Returns false for any other type: a derived class may hold state that OptimizerState would lose.
template <class F>
bool with_kind(const torch::optim::Optimizer& optimizer, F&& f) {
  namespace to = torch::optim;
  using Own = OwnOptimizer::Kind;
  const std::type_info& type = typeid(optimizer);
  const auto* const own = dynamic_cast<const OwnOptimizer*>(&optimizer);
  if (own && own->described() != type) return false;
  const auto is = [&](const std::type_info& exact, Own kind) {
    return own ? own->kind() == kind : type == exact;
  };
  if (is(typeid(to::SGD), Own::sgd)) {
    f(OptimizerKind<to::SGDOptions, to::SGDParamState>{}, "SGD");
  } else if (is(typeid(to::Adam), Own::adam)) {
    f(OptimizerKind<to::AdamOptions, to::AdamParamState>{}, "Adam");
  } else if (is(typeid(to::AdamW), Own::adamw)) {
    f(OptimizerKind<to::AdamWOptions, to::AdamWParamState>{}, "AdamW");
  } else if (own) {
    f(OptimizerKind<LambOptions, LambParamState>{}, "LAMB");
  } else if (type == typeid(to::RMSprop)) {
    f(OptimizerKind<to::RMSpropOptions, to::RMSpropParamState>{}, "RMSprop");
  } else if (type == typeid(to::Adagrad)) {
    f(OptimizerKind<to::AdagradOptions, to::AdagradParamState>{}, "Adagrad");
  } else if (type == typeid(to::LBFGS)) {
    f(OptimizerKind<to::LBFGSOptions, to::LBFGSParamState>{}, "LBFGS");
  } else {
    return false;
  }
  return true;
}

}}}  // namespace holdfast::v0_2::internal
