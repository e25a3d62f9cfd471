// Whether a call failed because the volume, or a quota, is full.
//
// Errors: none. Threads: pure.
#pragma once

#include <cerrno>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline bool no_room(const IoError& error) { return error.code() == ENOSPC || error.code() == EDQUOT; }

}}}  // namespace holdfast::v0_2::internal
