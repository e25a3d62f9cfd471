// One try of prepare_start_or_go_alone(): claims in HOME and fetches from there, or throws.
//
// Errors: as start.h. Threads: one.
#pragma once

#include <filesystem>
#include <vector>

#include "holdfast/mirror/start.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `tries`: the earlier ones. What this try claims and sees is added, also if it throws.
PreparedStart try_start(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory,
                        Home& home, Pace& pace, const StartChecks& checks, StartTries& tries);

}}}  // namespace holdfast::v0_2::internal
