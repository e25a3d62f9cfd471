// The text of the exception in flight, which may be of any type. Call it from a catch block.
//
// Errors: bad_alloc. Threads: any.
#pragma once

#include <exception>
#include <string>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `learn` gets the exception, if it is a std::exception.
template <class Learn>
std::string what_is_caught(const Learn& learn) {
  try {
    throw;
  } catch (const std::exception& error) {
    learn(error);
    return what_of(error);
  } catch (...) {
    return "an exception of unknown type";
  }
}

}}}  // namespace holdfast::v0_2::internal
