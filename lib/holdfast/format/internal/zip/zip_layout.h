// The constants of zip archives (PKWARE APPNOTE 6.3.10, sections 4.3 and 4.5). Numbers are little-endian.
//
// Errors: none. Threads: constants.
#pragma once

#include <cstdint>

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr std::uint32_t kZipLocalSignature = 0x04034b50;
inline constexpr std::uint32_t kZipCentralSignature = 0x02014b50;
inline constexpr std::uint32_t kZip64EndSignature = 0x06064b50;
inline constexpr std::uint32_t kZip64LocatorSignature = 0x07064b50;
inline constexpr std::uint32_t kZipEndSignature = 0x06054b50;

// Sizes without names, extra fields and comments.
inline constexpr std::uint64_t kZipLocalSize = 30;
inline constexpr std::uint64_t kZipCentralSize = 46;
inline constexpr std::uint64_t kZip64EndSize = 56;
inline constexpr std::uint64_t kZip64LocatorSize = 20;
inline constexpr std::uint64_t kZipEndSize = 22;

inline constexpr std::uint16_t kZip64Extra = 1;  // the extra field with 64-bit sizes and offset
inline constexpr std::uint16_t kZip64Version = 45;
inline constexpr std::uint32_t kZipSee64 = 0xFFFFFFFF;  // in a 32-bit field: the extra field has the value
inline constexpr std::uint16_t kZipSee64Short = 0xFFFF;
inline constexpr std::uint16_t kZipStored = 0;     // the only method that PyTorch writes
inline constexpr std::uint16_t kZipEncrypted = 1;  // a flag

}}}  // namespace holdfast::v0_2::internal
