// Keeps the memory that a training step frees for the next step. glibc returns blocks of hundreds of MB to
// the system at once, and the next step pays a page fault for each 4 KiB. On a CPU that costs up to a fifth
// of a step. The function does nothing where the C library is not glibc.
//
//   int main() {
//     holdfast::keep_freed_memory();  // first: it does not change blocks that were allocated before
//
// For programs, not for libraries: it sets a property of the whole process for its whole life.
// Cost: the process keeps its largest size. GPU memory and checkpoint images (snapshot/arena.h) are exempt.
// Errors: none. Threads: call before other threads start. Source: mallopt(3), M_MMAP_MAX, M_TRIM_THRESHOLD.
#pragma once

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

HOLDFAST_EXPORT void keep_freed_memory() noexcept;

}}  // namespace holdfast::v0_2
