// The compiled GPU kernels of a run (kernels/kernel_cache.h) on their way to HOME and back. Best effort: what
// is missing is compiled again, in some seconds.
//
// A file has the name of its key's digest, and its reader verifies it. So a file that is there is never
// replaced, and nothing is verified here.
// Errors: IoError. Threads: one.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

// Some hundred KB in truth: a HOME that holds anything else must not fill the disk.
inline constexpr std::uint64_t kLongestKernelFile = std::uint64_t{16} << 20;
inline constexpr std::size_t kKernelNameDigits = 32;  // hexadecimal, lower case

std::set<std::string> kernel_files(const Directory& folder);
// Those that `to` lacks.
void copy_kernel_files(Directory& from, Directory& to);

}}  // namespace holdfast::v0_2
