// Retention as people write it on a command line: policies with commas between them.
//
//   last=3,every=10000,best=test_accuracy:max:2,newer=7d
//
// last=N · every=STEPS · best=METRIC:min|max[:N] (best=loss means loss:min) · newer=DURATION. A number alone
// means last=N.
//
// Errors: parse_retention throws UsageError that quotes the part it does not understand.
// Threads: free functions, pure.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/store/retention.h"

namespace holdfast::inline v1 {

Retention parse_retention(std::string_view text);
// Gives an equal Retention when parsed.
std::string to_text(const Retention& keep);

}  // namespace holdfast::inline v1
