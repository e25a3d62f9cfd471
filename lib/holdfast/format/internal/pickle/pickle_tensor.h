// How the arguments of a call in a pickle of PyTorch become a tensor.
//
// Errors: PickleRefusal, which only the unpickler catches. Threads: pure.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "holdfast/format/internal/pickle/unpickler.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct PickleRefusal {
  std::string reason;
};
[[noreturn]] void refuse(const std::string& reason);

// `maker`: a name of NameUse::tensor. A text, with the remedy, for a tensor that no checkpoint holds.
std::variant<PickleTensor, std::string_view> tensor_of(std::string_view maker,
                                                       const std::vector<const PickleValue*>& arguments);
PickleStorage storage_of(const PickleValue& persistent_id);

}}}  // namespace holdfast::v0_2::internal
