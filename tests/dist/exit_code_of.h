// How a rank of these tests ends: its exit code is what the launcher and the tests look at.
//
// Threads: one.
#pragma once

#include <exception>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast::test {

// The exit code of `work`, which returns one; errors are logged and have their own.
template <class Work>
int exit_code_of(const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    log_error(error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    log_error(error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace holdfast::test
