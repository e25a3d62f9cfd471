// Keeps what a training step frees for the next step. Activations and gradients of one step are hundreds of
// megabytes, made and freed again and again. The C library gives blocks of that size back to the system at
// once, and the next step pays for every page of them anew: a page fault, and 4 KiB of zeros. On a CPU that
// is up to a fifth of a step.
//
//   int main() {
//     holdfast::keep_freed_memory();  // first: what was allocated before stays as it is
//
// For programs, not for libraries: it is a setting of the whole process, and for its whole life. Costs: what
// the largest step has used is kept, so the process is always as large as it ever was; blocks of the
// trainer's own that are freed are not given back, either. Memory on a GPU is not concerned (LibTorch keeps
// that anyway), nor are the images of checkpoints (snapshot/arena.h).
//
// Does nothing where the C library is not glibc. Threads: before others are started.
// Source: mallopt(3), M_MMAP_MAX and M_TRIM_THRESHOLD.
#pragma once

namespace holdfast::inline v1 {

void keep_freed_memory() noexcept;

}  // namespace holdfast::inline v1
