// Converts floating-point numbers to text and back without loss: as hex of their bits, or as the shortest
// decimal that parses to the same bits. Holdfast writes every float that decides the next step this way.
//
// Threads: pure functions. The write_ functions allocate nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// Lower-case hex of the bit pattern, most significant digit first: 1.0 gives "3ff0000000000000" and 1.0f
// gives "3f800000".
std::string bits_hex(double value);
std::string bits_hex(float value);
// Requires exactly 16 hex digits of either case. Keeps every NaN payload. nullopt for other text.
std::optional<double> double_from_bits_hex(std::string_view hex);

// Shortest decimal that parses to the same bits: "0.1", "-0", "1e+300", and "nan", "inf", "-inf". The payload
// of a NaN is lost; bits_hex() keeps it.
HOLDFAST_EXPORT std::string shortest_decimal(double value);
HOLDFAST_EXPORT std::string shortest_decimal(float value);
// Writes the same text into `buffer` of at least 32 bytes. Returns the number of characters written.
std::size_t write_shortest_decimal(double value, std::span<char> buffer);
// Writes 16 hex digits into `buffer` of at least 16 bytes.
void write_bits_hex(double value, std::span<char> buffer);

}}  // namespace holdfast::v0_2
