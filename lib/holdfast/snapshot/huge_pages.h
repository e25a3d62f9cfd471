// Asks the kernel for huge pages (2 MiB on x86-64) for new memory, before it is touched: it is then made with
// a 500th of the page faults.
//
// Errors: none; without huge pages the kernel uses small ones. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

// A huge page of the kernel on x86-64, and the usual size on other machines.
inline constexpr std::uint64_t kHugePage = 2u << 20;

// Advises several allocations at once: those that lie side by side in memory share huge pages.
HOLDFAST_EXPORT void advise_huge_pages(std::vector<std::span<std::byte>> memory) noexcept;

}}  // namespace holdfast::v0_2
