// Every exception leaves as an Error, so that a program can print its text and end with its code.
#pragma once

#include <new>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Returns what `work` returns. Throws OutOfMemoryError for its std::bad_alloc.
template <class Work>
auto or_out_of_memory(const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryError();
  }
}

}}}  // namespace holdfast::v0_2::internal
