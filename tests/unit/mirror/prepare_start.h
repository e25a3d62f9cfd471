// A start that does not wait for HOME and does not go on without it.
#pragma once

#include <filesystem>

#include "holdfast/mirror/internal/start_try.h"

namespace holdfast { inline namespace v0_2 {

inline PreparedStart prepare_start(FileSystem& files, Verifier& verifier, const std::filesystem::path& run,
                                   Home& home, Pace& pace, AttemptNumber claimed = 0) {
  StartTries tries;
  return internal::try_start(files, verifier, run, home, pace, {.claimed = claimed}, tries);
}

}}  // namespace holdfast::v0_2
