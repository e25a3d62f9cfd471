// Retention on a command line: policies separated by commas.
//
//   last=3,every=10000,best=test_accuracy:max:2,newer=7d
//
// last=N · every=STEPS · best=METRIC:min|max[:N] (best=loss means loss:min) · newer=DURATION. A bare number
// means last=N.
//
// Errors: parse_retention throws UsageError, which quotes the part that it does not understand.
// Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/export.h"
#include "holdfast/store/retention.h"

namespace holdfast { inline namespace v0_2 {

HOLDFAST_EXPORT Retention parse_retention(std::string_view text);
// parse_retention(to_text(keep)) equals `keep`.
HOLDFAST_EXPORT std::string to_text(const Retention& keep);

}}  // namespace holdfast::v0_2
