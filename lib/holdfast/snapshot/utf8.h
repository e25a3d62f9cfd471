// Names and texts that go into files are UTF-8; this is the one place that decides what that means.
//
// Threads: free functions, pure.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::inline v1 {

// Well-formed by RFC 3629: no overlong forms, no surrogates, nothing over U+10FFFF. NUL is well-formed.
bool is_utf8(std::string_view text);
// True when a byte below 0x20 or 0x7f is in it. Such bytes may steer a terminal.
bool has_control(std::string_view text);
// For messages about names that may be anything: control characters and malformed bytes as \xNN, at most
// `limit` bytes of text and then "…".
std::string printable(std::string_view text, std::size_t limit = 120);

}  // namespace holdfast::inline v1
