#include "holdfast/format/internal/pickle/pickle_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "holdfast/format/internal/pickle/torch_types.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

using Use = NameUse;
using NameEntry = std::pair<std::string_view, KnownName>;

constexpr std::string_view kTorchModule = "torch\n";
constexpr std::string_view kScriptModule = "__torch__";
constexpr std::string_view kSharded =
    "a DTensor or another tensor in a class of its own, which no checkpoint holds: save its full_tensor()";
constexpr std::string_view kNested = "a nested tensor, which no checkpoint holds: save its unbind()";

constexpr std::array<NameEntry, 52> kKnownNames{{
    {"collections\nOrderedDict", {Use::dict}},
    {kRebuildTensor, {Use::tensor}},
    {kRebuildTensor2, {Use::tensor}},
    {kRebuildTensor3, {Use::tensor}},
    // Tensors with attributes of the program's own, and nn.Buffer.
    {"torch._tensor\n_rebuild_from_type_v2", {Use::retyped}},
    // A reader of weights needs the first argument, and nothing of what these make of it.
    {"torch\nSize", {Use::argument}},
    {"torch\ndevice", {Use::argument}},
    {"torch.nn.parameter\nParameter", {Use::argument}},
    {"torch._utils\n_rebuild_parameter", {Use::argument}},
    {"torch._utils\n_rebuild_parameter_with_state", {Use::argument}},
    {"torch._utils\n_rebuild_device_tensor_from_cpu_tensor", {Use::argument}},
    {"torch.jit._pickle\nrestore_type_tag", {Use::argument}},
    {"torch.jit._pickle\nbuild_intlist", {Use::argument}},
    {"torch.jit._pickle\nbuild_tensorlist", {Use::argument}},
    {"torch.jit._pickle\nbuild_doublelist", {Use::argument}},
    {"torch.jit._pickle\nbuild_boollist", {Use::argument}},
    // Python 3 writes its builtins under the name of Python 2 where the protocol is 2, as torch.save() does.
    {"__builtin__\nset", {Use::plain}},
    {"__builtin__\nfrozenset", {Use::plain}},
    {"__builtin__\nbytes", {Use::plain}},
    {"__builtin__\nbytearray", {Use::plain}},
    {"__builtin__\ncomplex", {Use::plain}},
    {"builtins\nset", {Use::plain}},
    {"builtins\nfrozenset", {Use::plain}},
    {"builtins\nbytes", {Use::plain}},
    {"builtins\nbytearray", {Use::plain}},
    {"builtins\ncomplex", {Use::plain}},
    {"_codecs\nencode", {Use::plain}},  // bytes
    {"collections\nCounter", {Use::plain}},
    {"torch.serialization\n_get_layout", {Use::plain}},
    {"torch._utils\n_rebuild_qtensor",
     {Use::unstorable, "a quantized tensor, which no checkpoint holds: save its dequantize()"}},
    {"torch._utils\n_rebuild_sparse_tensor",
     {Use::unstorable, "a sparse tensor, which no checkpoint holds: save its to_dense()"}},
    {"torch._utils\n_rebuild_meta_tensor_no_storage",
     {Use::unstorable, "a tensor of the device 'meta', which has no values"}},
    {"torch._utils\n_rebuild_nested_tensor", {Use::unstorable, kNested}},
    {"torch.nested._internal.nested_tensor\n_rebuild_njt", {Use::unstorable, kNested}},
    {"torch._utils\n_rebuild_wrapper_subclass", {Use::unstorable, kSharded}},
    // Classes and parts of those tensors.
    {"torch.nested._internal.nested_tensor\nNestedTensor", {Use::plain}},
    {"torch._dynamo.decorators\n_DimRange", {Use::plain}},
    {"torch.distributed.tensor\nDTensor", {Use::plain}},
    {"torch.distributed.device_mesh\nDeviceMesh", {Use::plain}},
    {"torch.distributed.tensor._dtensor_spec\nDTensorSpec", {Use::plain}},
    {"torch.distributed.tensor._dtensor_spec\nTensorMeta", {Use::plain}},
    {"torch.distributed.tensor._dtensor_spec\nShardOrderEntry", {Use::plain}},
    {"torch.distributed._mesh_layout\n_MeshLayout", {Use::plain}},
    {"torch.distributed.tensor.placement_types\nPartial", {Use::plain}},
    {"torch.distributed.tensor.placement_types\nReplicate", {Use::plain}},
    {"torch.distributed.tensor.placement_types\nShard", {Use::plain}},
    {kUntypedStorage, {Use::type}},
    {"torch\nper_tensor_affine", {Use::type}},
    {"torch\nper_tensor_symmetric", {Use::type}},
    {"torch\nper_channel_affine", {Use::type}},
    {"torch\nper_channel_symmetric", {Use::type}},
    {"torch\nper_channel_affine_float_qparams", {Use::type}},
}};

}  // namespace

std::string_view behind_torch(std::string_view name) {
  return name.starts_with(kTorchModule) ? name.substr(kTorchModule.size()) : std::string_view();
}

KnownName known_name(std::string_view name) {
  const auto* const found = std::find_if(kKnownNames.begin(), kKnownNames.end(),
                                         [&](const NameEntry& entry) { return entry.first == name; });
  if (found != kKnownNames.end()) return found->second;
  if (name.starts_with(kScriptModule) &&
      (name[kScriptModule.size()] == '\n' || name[kScriptModule.size()] == '.')) {
    return {Use::script};
  }
  const std::string_view torch = behind_torch(name);
  // The classes of tensors: "Tensor", "FloatTensor".
  const bool known = torch.ends_with("Tensor") || type_of_storage_class(torch) || type_of_torch(torch);
  return {known ? Use::type : Use::unknown};
}

}}}  // namespace holdfast::v0_2::internal
