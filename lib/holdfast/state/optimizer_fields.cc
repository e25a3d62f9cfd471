#include "holdfast/state/optimizer_fields.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <vector>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

namespace to = torch::optim;

struct SgdFields {
  static constexpr char kName[] = "SGD";
  static constexpr bool kInShares = true;
  using Options = to::SGDOptions;
  using State = to::SGDParamState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("momentum", of.momentum());
    visit("dampening", of.dampening());
    visit("weight_decay", of.weight_decay());
    visit("nesterov", of.nesterov());
  }
  static void slots(State& of, const auto& visit) { visit("momentum_buffer", of.momentum_buffer()); }
};

template <class OptionsType, class StateType>
struct FieldsOfAdam {
  static constexpr bool kInShares = true;
  using Options = OptionsType;
  using State = StateType;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("betas", of.betas());
    visit("eps", of.eps());
    visit("weight_decay", of.weight_decay());
    visit("amsgrad", of.amsgrad());
  }
  static void slots(State& of, const auto& visit) {
    visit("exp_avg", of.exp_avg());
    visit("exp_avg_sq", of.exp_avg_sq());
    visit("max_exp_avg_sq", of.max_exp_avg_sq());
  }
};
struct AdamFields : FieldsOfAdam<to::AdamOptions, to::AdamParamState> {
  static constexpr char kName[] = "Adam";
};
struct AdamWFields : FieldsOfAdam<to::AdamWOptions, to::AdamWParamState> {
  static constexpr char kName[] = "AdamW";
};

struct RmspropFields {
  static constexpr char kName[] = "RMSprop";
  using Options = to::RMSpropOptions;
  using State = to::RMSpropParamState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("alpha", of.alpha());
    visit("eps", of.eps());
    visit("weight_decay", of.weight_decay());
    visit("momentum", of.momentum());
    visit("centered", of.centered());
  }
  static void slots(State& of, const auto& visit) {
    visit("square_avg", of.square_avg());
    visit("momentum_buffer", of.momentum_buffer());
    visit("grad_avg", of.grad_avg());
  }
};

struct AdagradFields {
  static constexpr char kName[] = "Adagrad";
  using Options = to::AdagradOptions;
  using State = to::AdagradParamState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("lr_decay", of.lr_decay());
    visit("weight_decay", of.weight_decay());
    visit("initial_accumulator_value", of.initial_accumulator_value());
    visit("eps", of.eps());
  }
  static void slots(State& of, const auto& visit) { visit("sum", of.sum()); }
};

struct LbfgsFields {
  static constexpr char kName[] = "LBFGS";
  static constexpr bool kOneState = true;
  using Options = to::LBFGSOptions;
  using State = to::LBFGSParamState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("max_iter", of.max_iter());
    visit("max_eval", of.max_eval());
    visit("tolerance_grad", of.tolerance_grad());
    visit("tolerance_change", of.tolerance_change());
    visit("history_size", of.history_size());
    visit("line_search_fn", of.line_search_fn());
  }
};

struct TorchKind {
  const std::type_info& torch;
  const OptimizerKind& kind;
};
const TorchKind kTorchKinds[] = {
    {typeid(to::SGD), kKindOf<SgdFields>},         {typeid(to::Adam), kKindOf<AdamFields>},
    {typeid(to::AdamW), kKindOf<AdamWFields>},     {typeid(to::RMSprop), kKindOf<RmspropFields>},
    {typeid(to::Adagrad), kKindOf<AdagradFields>}, {typeid(to::LBFGS), kKindOf<LbfgsFields>}};

constexpr char kNone[] = "none";  // an option without a value

struct ValueOf {
  AttributeValue operator()(const double* of) const { return *of; }
  AttributeValue operator()(const bool* of) const { return *of; }
  AttributeValue operator()(const std::int64_t* of) const { return *of; }
  AttributeValue operator()(const std::tuple<double, double>* of) const {
    return std::vector<double>{std::get<0>(*of), std::get<1>(*of)};
  }
  AttributeValue operator()(const std::optional<std::int64_t>* of) const {
    if (*of) return **of;
    return std::string(kNone);
  }
  AttributeValue operator()(const std::optional<std::string>* of) const { return of->value_or(kNone); }
};

// False: the value has another type.
struct SetTo {
  const AttributeValue& value;

  template <class T>
  bool operator()(T* field) const {
    const T* const found = std::get_if<T>(&value);
    if (found != nullptr) *field = *found;
    return found != nullptr;
  }
  bool operator()(std::tuple<double, double>* field) const {
    const auto* const found = std::get_if<std::vector<double>>(&value);
    if (found == nullptr || found->size() != 2) return false;
    *field = {(*found)[0], (*found)[1]};
    return true;
  }
  template <class T>
  bool operator()(std::optional<T>* field) const {
    const auto* const text = std::get_if<std::string>(&value);
    if (text != nullptr && *text == kNone) {
      field->reset();
      return true;
    }
    const T* const found = std::get_if<T>(&value);
    if (found != nullptr) *field = *found;
    return found != nullptr;
  }
};

}  // namespace

std::set<const OptimizerKind*> torch_kinds() {
  std::set<const OptimizerKind*> kinds;
  for (const TorchKind& row : kTorchKinds) kinds.insert(&row.kind);
  return kinds;
}

const OptimizerKind* torch_kind(const std::type_info& of_class) {
  const auto* const found = std::find_if(std::begin(kTorchKinds), std::end(kTorchKinds),
                                         [&](const TorchKind& row) { return row.torch == of_class; });
  return found == std::end(kTorchKinds) ? nullptr : &found->kind;
}

const OptimizerKind* torch_kind_of_state(const torch::optim::OptimizerParamState& state) {
  const auto* const found = std::find_if(std::begin(kTorchKinds), std::end(kTorchKinds),
                                         [&](const TorchKind& row) { return row.kind.is_state(state); });
  return found == std::end(kTorchKinds) ? nullptr : &found->kind;
}

const OptimizerKind* kind_of(const torch::optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (const auto* const own = dynamic_cast<const OwnOptimizer*>(&optimizer)) {
    return own->described() == type ? &own->kind() : nullptr;
  }
  return torch_kind(type);
}

namespace internal {

void visit_options(const OptimizerKind& kind, torch::optim::OptimizerOptions& options,
                   const std::string& optimizer, const VisitOption& visit) {
  if (kind.options(options, visit)) return;
  throw UsageError("a parameter group of optimizer '" + optimizer + "' has the options of another optimizer");
}

Attributes values_of(const OptimizerKind& kind, torch::optim::OptimizerOptions& options,
                     const std::string& optimizer) {
  Attributes values;
  visit_options(kind, options, optimizer,
                [&](const char* option, const OptionField& field) { values.set(option, to_value(field)); });
  return values;
}

AttributeValue to_value(const OptionField& field) { return std::visit(ValueOf(), field); }

bool from_value(const AttributeValue& value, const OptionField& field) {
  return std::visit(SetTo{value}, field);
}

torch::optim::OptimizerParamState* state_of(const torch::optim::Optimizer& optimizer,
                                            const at::Tensor& parameter, const OptimizerKind& kind) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end() || !found->second) return nullptr;
  return kind.is_state(*found->second) ? found->second.get() : nullptr;
}

bool has_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found != optimizer.state().end() && found->second;
}

const at::Tensor& first_parameter(const torch::optim::Optimizer& optimizer) {
  return optimizer.param_groups().front().params().front();
}

}  // namespace internal

}}  // namespace holdfast::v0_2
