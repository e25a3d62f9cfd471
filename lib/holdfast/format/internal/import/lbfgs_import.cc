// LBFGS has one state for all parameters, under the number of the first.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/import/optimizer_import.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/pickle/pickle_tree.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::array<const char*, 3> kLbfgsVectors = {"d", "H_diag", "prev_flat_grad"};
constexpr std::array<const char*, 3> kLbfgsLists = {"old_dirs", "old_stps", "ro"};

bool is_scalar(const std::string& field) { return field == "H_diag" || field.starts_with("ro."); }

}  // namespace

std::vector<TensorSpec> OptimizerImport::wanted_of_lbfgs(const std::string& field) const {
  const std::string name = name_ + "/lbfgs/" + field;
  std::vector<TensorSpec> wanted;
  if (const TensorSpec* const own = draft_.find(name)) wanted.push_back(*own);
  // Vectors have the elements of all parameters, one behind the other.
  std::int64_t elements = 0;
  const TensorSpec* first = nullptr;
  for (const auto& group : groups_) {
    for (const std::string& parameter : group) {
      const auto& like = parameters_.at(parameter);
      if (like.empty()) return wanted;
      if (first == nullptr) first = like.data();
      elements += static_cast<std::int64_t>(like[0].elements());
    }
  }
  if (first == nullptr) return wanted;
  const auto shape = is_scalar(field) ? std::vector<std::int64_t>() : std::vector<std::int64_t>{elements};
  wanted.push_back({name, first->dtype, shape});
  return wanted;
}

void OptimizerImport::take_vector(const std::string& field, const PickleValue* value,
                                  std::vector<std::string>& defined) {
  if (value == nullptr || value->kind == PickleValue::Kind::none) return;
  const std::string name = name_ + "/lbfgs/" + field;
  const auto wanted = wanted_of_lbfgs(field);
  defined.push_back(field);
  // Until LBFGS has a history, Python's H_diag is the number 1.
  const bool plain = value->kind == PickleValue::Kind::integer || value->kind == PickleValue::Kind::real;
  if (!plain || field != "H_diag" || wanted.empty()) return take_slot(name, *value, wanted);
  draft_.make(wanted[0], draft_.number(name, *value).value());
  ++slots_;
}

void OptimizerImport::take_list(const std::string& field, const PickleValue* value) {
  if (value != nullptr && value->kind == PickleValue::Kind::none) value = nullptr;
  if (value != nullptr && !is_sequence(*value)) refuse_it("has no list '" + field + "' in its state");
  const std::size_t length = value != nullptr ? value->items.size() : 0;
  const AttributeValue* const longest = present(0, "history_size");
  const auto* const most = longest != nullptr ? std::get_if<std::int64_t>(longest) : nullptr;
  if (most != nullptr && length > static_cast<std::size_t>(std::max<std::int64_t>(*most, 0))) {
    refuse_it("has " + std::to_string(length) + " entries in '" + field +
              "', and its history_size allows fewer");
  }
  for (std::size_t i = 0; i < length; ++i) {
    const std::string entry = field + "." + std::to_string(i);
    take_slot(name_ + "/lbfgs/" + entry, *value->items[i], wanted_of_lbfgs(entry));
  }
  draft_.attributes.set(name_ + ".lbfgs." + field, static_cast<std::int64_t>(length));
}

void OptimizerImport::take_lbfgs(const std::vector<std::vector<std::int64_t>>& numbers,
                                 const States& states) {
  const std::string prefix = name_ + ".lbfgs.";
  const bool is_there = !numbers.empty() && !numbers[0].empty() && states.contains(numbers[0][0]);
  if (states.size() > (is_there ? 1U : 0U)) {
    refuse_it(
        "has states of single parameters, and the LBFGS of the checkpoint has one for all: save the "
        "same kind of optimizer");
  }
  TextMembers state;
  if (is_there) state = text_members(*states.at(numbers[0][0]));
  if (state.empty()) {
    for (const auto& [name, attribute] : draft_.attributes.with_prefix(prefix)) draft_.attributes.erase(name);
    for (const IndexedTensor& tensor : draft_.like().tensors) {
      if (tensor.spec.name.starts_with(name_ + "/lbfgs/")) draft_.drop(tensor.spec.name);
    }
    return;
  }
  const auto value_of = [&](const std::string& field) {
    const auto found = state.find(field);
    const PickleValue* const value = found != state.end() ? found->second : nullptr;
    if (found != state.end()) state.erase(found);
    return value;
  };
  for (const char* const counter : {"func_evals", "n_iter"}) {
    const PickleValue* const value = value_of(counter);
    const auto count = value != nullptr ? value_like(*value, std::int64_t{0}) : std::nullopt;
    if (!count) refuse_it("has no count '" + std::string(counter) + "' in its state: save an LBFGS");
    draft_.attributes.set(prefix + counter, *count);
  }
  // Python sets them with the first iteration that goes on.
  for (const char* const number : {"t", "prev_loss"}) {
    const PickleValue* const value = value_of(number);
    const bool missing = value == nullptr || value->kind == PickleValue::Kind::none;
    const auto found = missing ? std::optional(0.0) : draft_.number(number, *value);
    if (!found) refuse_it("has no number '" + std::string(number) + "' in its state");
    draft_.attributes.set(prefix + number, *found);
  }
  std::vector<std::string> defined;
  for (const char* const field : kLbfgsVectors) take_vector(field, value_of(field), defined);
  draft_.attributes.set(prefix + "vectors", std::move(defined));
  for (const char* const field : kLbfgsLists) take_list(field, value_of(field));
  value_of("al");  // LBFGS fills it before it reads it
  if (!state.empty()) {
    refuse_it("has '" + printable(state.begin()->first) +
              "' in its state, for which the LBFGS of the checkpoint has no place");
  }
}

}}}  // namespace holdfast::v0_2::internal
