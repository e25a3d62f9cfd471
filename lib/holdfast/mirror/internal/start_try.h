// One try of prepare_start_or_go_alone(): claims in HOME and fetches from there, or throws.
//
// Errors: as start.h. Threads: one.
#pragma once

#include <filesystem>
#include <vector>

#include "holdfast/mirror/start.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// `claims`: the numbers claimed in HOME by earlier tries. A number that this try claims is added, also if it
// throws.
PreparedStart try_start(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory,
                        Home& home, Pace& pace, const StartChecks& checks,
                        std::vector<AttemptNumber>& claims);

}}}  // namespace holdfast::v0_2::internal
