// Tries which calls a volume supports, on files in a probe's folder.
//
// Errors: IoError if a call fails for another reason (EIO, ENOSPC …). Threads: one.
#pragma once

#include "holdfast/io/internal/probe_folder.h"
#include "holdfast/io/volume_report.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Fills in space, kind and mount. Needs no folder and changes nothing.
void look_at_volume(const FileSystem& file_system, const std::filesystem::path& directory,
                    VolumeReport& report);
void try_calls(ProbeFolder& folder, VolumeReport& report);

}}}  // namespace holdfast::v0_2::internal
