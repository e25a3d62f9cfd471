// UTF-8 for names and texts that go into files, and safe output of text that may hold any byte.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Well-formed as RFC 3629 says: no overlong forms, no surrogates, nothing above U+10FFFF. NUL is well-formed.
HOLDFAST_EXPORT bool is_utf8(std::string_view text);
// True if the text has a byte below 0x20 or 0x7f. Such bytes may control a terminal.
HOLDFAST_EXPORT bool has_control(std::string_view text);
// For names in messages. Malformed bytes, control characters (C0, DEL, C1) and marks of bidirectional text
// become \xNN, byte by byte. After about `limit` bytes of output the text ends with "…".
HOLDFAST_EXPORT std::string printable(std::string_view text, std::size_t limit = 120);

// For whole messages: the same, without a limit, and newlines and tabs stay. Every log line, table and system
// error passes through one of the two functions, so no text can control the terminal.
std::string terminal_text(std::string_view text);

// Length of the well-formed character at the start of `text`; 0 if there is none. Requires text.
std::size_t character_length(std::string_view text);
// The whole characters at the start of `text` that fit into `most` bytes. Requires well-formed text.
std::string_view cut_text(std::string_view text, std::size_t most);

}}  // namespace holdfast::v0_2
