// HMAC-SHA-256 (RFC 2104, FIPS 180-4). It proves that both sides of a connection know a secret without
// sending it. Neither LibTorch nor the distributions' base systems have a header with one.
//
// Errors: std::bad_alloc. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

std::string sha256(std::string_view bytes);                                                 // 32 bytes
HOLDFAST_EXPORT std::string keyed_hash(std::string_view secret, std::string_view message);  // 32 bytes
// Takes the same time wherever the texts differ.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}}  // namespace holdfast::v0_2
