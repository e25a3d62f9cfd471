#include "holdfast/format/internal/pickle_tensor.h"

#include <algorithm>
#include <array>
#include <optional>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/torch_types.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Kind = PickleValue::Kind;
using Values = std::vector<const PickleValue*>;

constexpr std::string_view kVersion2 = "torch._utils\n_rebuild_tensor_v2";
constexpr std::string_view kVersion3 = "torch._utils\n_rebuild_tensor_v3";
constexpr std::string_view kTorch = "torch\n";
constexpr std::string_view kScript = "__torch__";
// So that sums of offsets and lengths stay within 64 bits.
constexpr std::int64_t kMost = std::int64_t{1} << 56;

// A reader of weights needs their first argument, and nothing of what they make of it.
constexpr std::array<std::string_view, 8> kWrappers = {"torch\nSize",
                                                       "torch\ndevice",
                                                       "torch._utils\n_rebuild_parameter",
                                                       "torch.jit._pickle\nrestore_type_tag",
                                                       "torch.jit._pickle\nbuild_intlist",
                                                       "torch.jit._pickle\nbuild_tensorlist",
                                                       "torch.jit._pickle\nbuild_doublelist",
                                                       "torch.jit._pickle\nbuild_boollist"};

std::string_view behind_torch(std::string_view name) {
  return name.starts_with(kTorch) ? name.substr(kTorch.size()) : std::string_view();
}

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

bool is_script_class(std::string_view name) {
  return name.starts_with(kScript) && (name[kScript.size()] == '\n' || name[kScript.size()] == '.');
}

bool is_tensor_maker(std::string_view name) { return name == kVersion2 || name == kVersion3; }

bool returns_its_argument(std::string_view name) {
  return std::find(kWrappers.begin(), kWrappers.end(), name) != kWrappers.end();
}

bool is_known_name(std::string_view name) {
  if (name == "collections\nOrderedDict" || name == "torch.storage\nUntypedStorage") return true;
  if (is_tensor_maker(name) || returns_its_argument(name) || is_script_class(name)) return true;
  const std::string_view torch = behind_torch(name);
  return dtype_of_storage_class(torch) || dtype_of_torch(torch);
}

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
  storage.dtype = dtype_of_storage_class(behind_torch(type));
  if (!storage.dtype && type != "torch.storage\nUntypedStorage") refuse("a storage of an unknown class");
  storage.key = parts[2]->text();
  storage.elements = static_cast<std::uint64_t>(count(*parts[4], "storage"));
  return storage;
}

PickleTensor tensor_of(std::string_view maker, const Values& arguments) {
  const bool names_dtype = maker == kVersion3;
  if (arguments.size() < (names_dtype ? 7 : 6) || arguments[0]->kind != Kind::storage) {
    refuse("a tensor is not described as PyTorch does");
  }
  PickleTensor tensor;
  tensor.storage = arguments[0]->storage;
  std::optional<DType> dtype = tensor.storage->dtype;
  if (names_dtype) {
    dtype =
        arguments[6]->kind == Kind::name ? dtype_of_torch(behind_torch(arguments[6]->text())) : std::nullopt;
  }
  if (!dtype) refuse("a tensor without a type that Holdfast has");
  // The last argument, which is optional: {"conj": True} and {"neg": True} mean that the values in the
  // storage are not yet conjugated or negated.
  for (std::size_t i = names_dtype ? 7 : 6; i < arguments.size(); ++i) {
    if (arguments[i]->kind == Kind::none || (arguments[i]->kind == Kind::dict && arguments[i]->items.empty()))
      continue;
    refuse("a tensor that is only marked as conjugated or negated; save its resolve_conj().resolve_neg()");
  }
  tensor.dtype = *dtype;
  tensor.offset = static_cast<std::uint64_t>(count(*arguments[1], "offset"));
  tensor.shape = counts(*arguments[2], "shape");
  tensor.strides = counts(*arguments[3], "stride");
  if (tensor.shape.size() != tensor.strides.size()) refuse("a tensor with more sizes than strides, or fewer");
  // An untyped storage counts bytes.
  const std::uint64_t unit = tensor.storage->dtype ? size_of(*tensor.storage->dtype) : 1;
  if (reach(tensor) > tensor.storage->elements * unit / size_of(tensor.dtype)) {
    refuse("a tensor reaches out of its storage");
  }
  return tensor;
}

}}}  // namespace holdfast::v0_2::internal
