// Floating-point numbers without loss, in text: as hex of their bits, and as the shortest decimal that gives
// the same bits back. A float that decides the next step is never written any other way.
//
// Threads: free functions, pure; no allocation where a buffer is handed in.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace holdfast::inline v1 {

// Lower-case hex of the bit pattern, most significant digit first: 1.0 is "3ff0000000000000", 1.0f
// "3f800000".
std::string bits_hex(double value);
std::string bits_hex(float value);
// Exactly 16 (8) hex digits, either case; every NaN payload survives. nullopt for anything else.
std::optional<double> double_from_bits_hex(std::string_view hex);
std::optional<float> float_from_bits_hex(std::string_view hex);

// Shortest decimal that parses to the same bits: "0.1", "-0", "1e+300", and "nan", "inf", "-inf" (the payload
// of a NaN is lost: bits_hex keeps it).
std::string shortest_decimal(double value);
std::string shortest_decimal(float value);
// The same into `buffer`, at least 32 bytes; returns the characters written.
std::size_t write_shortest_decimal(double value, std::span<char> buffer);
// 16 hex digits into `buffer`, at least 16 bytes.
void write_bits_hex(double value, std::span<char> buffer);

}  // namespace holdfast::inline v1
