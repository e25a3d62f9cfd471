// What the names in a pickle of PyTorch mean: which are known, and how a call's arguments become a tensor.
//
// Errors: PickleRefusal, which only the unpickler catches. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "holdfast/format/internal/unpickler.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct PickleRefusal {
  std::string reason;
};
[[noreturn]] void refuse(const std::string& reason);

// Names are "module\nname".
bool is_known_name(std::string_view name);
bool is_script_class(std::string_view name);       // of an archive that C++ wrote
bool is_tensor_maker(std::string_view name);       // torch._utils._rebuild_tensor_v2, …
bool returns_its_argument(std::string_view name);  // types of lists in C++, sizes, nn.Parameter

PickleTensor tensor_of(std::string_view maker, const std::vector<const PickleValue*>& arguments);
PickleStorage storage_of(const PickleValue& persistent_id);

}}}  // namespace holdfast::v0_2::internal
