// Names in one line of a message, which must stay readable where there are thousands.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// "a, b and 3 more", with at most `shown` of the names.
HOLDFAST_EXPORT std::string name_list(std::span<const std::string> names, std::size_t shown);

}}  // namespace holdfast::v0_2
