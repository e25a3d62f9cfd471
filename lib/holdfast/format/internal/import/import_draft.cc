#include "holdfast/format/internal/import/import_draft.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/pickle/pickle_tree.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using ValueKind = PickleValue::Kind;

bool value_as(const PickleValue& value, bool& to) {
  to = value.kind == ValueKind::boolean && value.integer != 0;
  return value.kind == ValueKind::boolean;
}
bool value_as(const PickleValue& value, std::int64_t& to) {
  if (value.kind != ValueKind::integer) return false;
  to = value.integer;
  return true;
}
bool value_as(const PickleValue& value, double& to) {
  if (value.kind == ValueKind::real) {
    to = value.real;
    return true;
  }
  // Python writes lr=1 as an integer.
  constexpr std::int64_t kExact = std::int64_t{1} << 53U;
  if (value.kind != ValueKind::integer || value.integer > kExact || value.integer < -kExact) return false;
  to = static_cast<double>(value.integer);
  return true;
}
bool value_as(const PickleValue& value, std::string& to) {
  if (value.kind != ValueKind::text || !is_utf8(value.text())) return false;
  to = value.text();
  return true;
}
template <class Item>
bool value_as(const PickleValue& value, std::vector<Item>& to) {
  if (!is_sequence(value)) return false;
  for (const PickleValue* const item : value.items) {
    Item next{};
    if (!value_as(*item, next)) return false;
    to.push_back(std::move(next));
  }
  return true;
}

std::string type_text(const TensorSpec& spec, const ByteType* type) {
  return std::string(type != nullptr ? type->name : name_of(spec.dtype)) + " " + shape_text(spec.shape);
}

}  // namespace

TextMembers text_members(const PickleValue& dict) {
  TextMembers members;
  const auto* const items = items_of(dict);
  for (std::size_t i = 0; items != nullptr && i < items->size(); i += 2) {
    if ((*items)[i]->kind == ValueKind::text) members[(*items)[i]->text()] = (*items)[i + 1];
  }
  return members;
}

std::optional<AttributeValue> value_like(const PickleValue& value, const AttributeValue& like) {
  return std::visit(
      [&](const auto& known) -> std::optional<AttributeValue> {
        std::decay_t<decltype(known)> found{};
        if (!value_as(value, found)) return std::nullopt;
        return AttributeValue(std::move(found));
      },
      like);
}

std::string_view kind_text(const PickleValue& value) {
  switch (value.kind) {
    case ValueKind::none:
      return "None";
    case ValueKind::boolean:
      return "a truth value";
    case ValueKind::integer:
      return "an integer";
    case ValueKind::real:
      return "a float";
    case ValueKind::text:
      return "a text";
    case ValueKind::list:
    case ValueKind::tuple:
      return "a list";
    case ValueKind::dict:
    case ValueKind::object:
      return "a dict";
    case ValueKind::tensor:
    case ValueKind::unstorable:
      return "a tensor";
    case ValueKind::name:
    case ValueKind::storage:
    case ValueKind::opaque:
      break;
  }
  return "a value of another type";
}

ImportDraft::ImportDraft(const CheckpointIndex& like, PickleArchive& archive)
    : attributes(like.attributes), like_(like), archive_(archive) {
  for (const IndexedTensor& tensor : like.tensors) by_name_.emplace(tensor.spec.name, &tensor.spec);
}

const TensorSpec* ImportDraft::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found != by_name_.end() ? found->second : nullptr;
}

void ImportDraft::add(const TensorSpec& spec) {
  const auto dropped = dropped_.find(spec.name);
  if (dropped != dropped_.end()) dropped_.erase(dropped);
  if (find(spec.name) == nullptr) added_.push_back(spec);
}

void ImportDraft::take(const std::string& name, const PickleValue& value,
                       const std::vector<TensorSpec>& wanted) {
  if (value.kind == ValueKind::unstorable) refuse("'" + printable(name) + "': " + std::string(value.text()));
  if (value.kind != ValueKind::tensor) {
    refuse("'" + printable(name) + "' is " + std::string(kind_text(value)) +
           " in it, and a tensor in the checkpoint");
  }
  const PickleTensor& tensor = *value.tensor;
  const TensorSpec spec{name, tensor.dtype, tensor.shape};
  const auto fits = [&](const TensorSpec& other) {
    return other.dtype == spec.dtype && other.shape == spec.shape &&
           byte_type_of(like_.attributes, other) == tensor.type;
  };
  if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), fits)) {
    refuse("'" + printable(name) + "' is " + type_text(spec, tensor.type) +
           " in it, and the checkpoint needs " +
           type_text(wanted[0], byte_type_of(like_.attributes, wanted[0])) +
           ": save the state of the same model and optimizer, in the same types");
  }
  archive_.add(index_, name, tensor);
  add(spec);
}

void ImportDraft::read_beside(const std::string& name, const PickleTensor& tensor) {
  archive_.add(index_, name, tensor);
}

void ImportDraft::make(const TensorSpec& spec, double value) {
  std::vector<std::byte> bytes(size_of(spec.dtype));
  if (spec.dtype == DType::float32) {
    put_little_endian(std::span(bytes), 0, std::bit_cast<std::uint32_t>(static_cast<float>(value)));
  } else if (spec.dtype == DType::float64) {
    put_little_endian(std::span(bytes), 0, std::bit_cast<std::uint64_t>(value));
  } else if (spec.dtype == DType::int64 && std::abs(value) < 1e15 && value == std::floor(value)) {
    put_little_endian(std::span(bytes), 0, static_cast<std::uint64_t>(static_cast<std::int64_t>(value)));
  } else {
    refuse("'" + printable(spec.name) + "' is a number in it: save it as a tensor of " +
           std::string(name_of(spec.dtype)));
  }
  made[spec.name] = std::move(bytes);
  add(spec);
}

std::optional<double> ImportDraft::number(const std::string& name, const PickleValue& value) const {
  if (value.kind != ValueKind::tensor) {
    double plain = 0;
    return value_as(value, plain) ? std::optional(plain) : std::nullopt;
  }
  const PickleTensor& tensor = *value.tensor;
  const std::string text = archive_.element(name, tensor);
  const auto bytes = std::as_bytes(std::span(text));
  switch (tensor.dtype) {
    case DType::float32:
      return std::bit_cast<float>(get_little_endian<std::uint32_t>(bytes, 0));
    case DType::float64:
      return std::bit_cast<double>(get_little_endian<std::uint64_t>(bytes, 0));
    case DType::int32:
      return static_cast<double>(static_cast<std::int32_t>(get_little_endian<std::uint32_t>(bytes, 0)));
    case DType::int64:
      return static_cast<double>(static_cast<std::int64_t>(get_little_endian<std::uint64_t>(bytes, 0)));
    default:
      return std::nullopt;
  }
}

std::vector<TensorSpec> ImportDraft::tensors() const {
  std::vector<TensorSpec> specs;
  for (const IndexedTensor& tensor : like_.tensors) {
    if (!dropped_.contains(tensor.spec.name)) specs.push_back(tensor.spec);
  }
  specs.insert(specs.end(), added_.begin(), added_.end());
  return specs;
}

}}}  // namespace holdfast::v0_2::internal
