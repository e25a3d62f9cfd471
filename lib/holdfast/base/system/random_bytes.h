// Random bytes from the kernel, for names that nobody else has.
//
// Errors: IoError if the kernel has none. Threads: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

std::string random_bytes(std::size_t count);
HOLDFAST_EXPORT std::string in_hex(std::string_view bytes);  // lower-case digits, two a byte
// Fills `bytes`. False unless `hex` is what in_hex() writes for that many.
bool from_hex(std::string_view hex, std::span<std::byte> bytes);

}}  // namespace holdfast::v0_2
