// The names of classes and functions that a pickle of PyTorch may have, and what a call of each is to a
// reader of weights. They are those that torch.load opens with weights_only=True (PyTorch's
// _weights_only_unpickler.py), and those that C++ writes. None is looked up, and no code runs.
//
// Errors: none. Threads: pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast { inline namespace v0_2 { namespace internal {

enum class NameUse : std::uint8_t {
  unknown,     // refused wherever it stands
  type,        // no function: an element type, a class of storages
  script,      // a class of an archive that C++ wrote
  dict,        // makes an OrderedDict
  tensor,      // makes a tensor of a storage
  retyped,     // calls another one, and gives the result a class and attributes
  argument,    // its first argument: sizes, types of lists in C++, nn.Parameter
  plain,       // a value that no weights need: a set, bytes, a complex number, a Counter
  unstorable,  // a tensor that no checkpoint holds
};

struct KnownName {
  NameUse use = NameUse::unknown;
  std::string_view why = {};  // of an unstorable one: a sentence with the remedy
};

// `name` is "module\nname".
KnownName known_name(std::string_view name);
// What follows "torch\n"; empty for other modules.
std::string_view behind_torch(std::string_view name);

inline constexpr std::string_view kRebuildTensor = "torch._utils\n_rebuild_tensor";  // before PyTorch 0.4
inline constexpr std::string_view kRebuildTensor2 = "torch._utils\n_rebuild_tensor_v2";
inline constexpr std::string_view kRebuildTensor3 = "torch._utils\n_rebuild_tensor_v3";
inline constexpr std::string_view kUntypedStorage = "torch.storage\nUntypedStorage";

}}}  // namespace holdfast::v0_2::internal
