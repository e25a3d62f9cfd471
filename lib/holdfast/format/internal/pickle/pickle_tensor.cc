#include "holdfast/format/internal/pickle/pickle_tensor.h"

#include <algorithm>
#include <optional>

#include "holdfast/format/internal/pickle/pickle_names.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Kind = PickleValue::Kind;
using Values = std::vector<const PickleValue*>;

// So that sums of offsets and lengths stay within 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 56;

std::int64_t count(const PickleValue& value, const char* what) {
  // Every number of a description comes from a file that may be hostile.
  if (value.kind != Kind::integer || value.integer < 0 || value.integer > kMost) {
    refuse(std::string("a tensor's ") + what + " is no size");
  }
  return value.integer;
}

std::vector<std::int64_t> counts(const PickleValue& value, const char* what) {
  if (value.kind != Kind::tuple || value.items.size() > kMaxRank) {
    refuse(std::string("a tensor's ") + what + " is no list of up to " + std::to_string(kMaxRank) + " sizes");
  }
  std::vector<std::int64_t> numbers;
  for (const PickleValue* const item : value.items) numbers.push_back(count(*item, what));
  return numbers;
}

// Elements of the storage from its start to the tensor's last element.
std::uint64_t reach(const PickleTensor& tensor) {
  // 128 bits: a product of two numbers of the file may need them.
  __extension__ using Wide = unsigned __int128;
  Wide last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    // A tensor without elements reaches nothing, wherever it starts.
    if (tensor.shape[i] == 0) return 0;
    last += Wide(tensor.shape[i] - 1) * Wide(tensor.strides[i]);
    if (last > Wide(kMost)) refuse("a tensor is larger than any memory");
  }
  return static_cast<std::uint64_t>(last) + 1;
}

}  // namespace

void refuse(const std::string& reason) { throw PickleRefusal{reason}; }

PickleStorage storage_of(const PickleValue& id) {
  // PyTorch's persistent id: ("storage", class, key, location, number of elements).
  const Values& parts = id.items;
  if (id.kind != Kind::tuple || parts.size() != 5 || parts[0]->kind != Kind::text ||
      parts[0]->text() != "storage" || parts[1]->kind != Kind::name || parts[2]->kind != Kind::text ||
      parts[3]->kind != Kind::text) {
    refuse("a storage is not described as PyTorch does");
  }
  const std::string_view type = parts[1]->text();
  PickleStorage storage;
  storage.type = type_of_storage_class(behind_torch(type));
  if (!storage.type && type != kUntypedStorage) refuse("a storage of an unknown class");
  storage.key = parts[2]->text();
  storage.elements = static_cast<std::uint64_t>(count(*parts[4], "storage"));
  return storage;
}

std::variant<PickleTensor, std::string_view> tensor_of(std::string_view maker, const Values& arguments) {
  const bool names_type = maker == kRebuildTensor3;
  const std::size_t needed = maker == kRebuildTensor ? 4 : names_type ? 7 : 6;
  if (arguments.size() < needed || arguments[0]->kind != Kind::storage) {
    refuse("a tensor is not described as PyTorch does");
  }
  PickleTensor tensor;
  tensor.storage = arguments[0]->storage;
  std::optional<TorchType> type = tensor.storage->type;
  if (names_type) {
    type =
        arguments[6]->kind == Kind::name ? type_of_torch(behind_torch(arguments[6]->text())) : std::nullopt;
  }
  if (!type) refuse("a tensor without an element type");
  if (!type->dtype) return type->why_not;
  // The last argument, which is optional: {"conj": True} and {"neg": True} mean that the values in the
  // storage are not yet conjugated or negated.
  for (std::size_t i = needed; i < arguments.size(); ++i) {
    if (arguments[i]->kind == Kind::none || (arguments[i]->kind == Kind::dict && arguments[i]->items.empty()))
      continue;
    return "a tensor that is only marked as conjugated or negated: save its resolve_conj().resolve_neg()";
  }
  tensor.dtype = *type->dtype;
  tensor.type = type->bytes;
  tensor.offset = static_cast<std::uint64_t>(count(*arguments[1], "offset"));
  tensor.shape = counts(*arguments[2], "shape");
  tensor.strides = counts(*arguments[3], "stride");
  if (tensor.shape.size() != tensor.strides.size()) refuse("a tensor with more sizes than strides, or fewer");
  if (reach(tensor) > tensor.storage->elements * tensor.storage->unit() / size_of(tensor.dtype)) {
    refuse("a tensor reaches out of its storage");
  }
  return tensor;
}

}}}  // namespace holdfast::v0_2::internal
