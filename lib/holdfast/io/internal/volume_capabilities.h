// Which calls a volume understands, tried on files in a probe's folder.
//
// Errors: IoError for what is no answer (EIO, ENOSPC …). Threads: one.
#pragma once

#include "holdfast/io/internal/probe_folder.h"
#include "holdfast/io/volume_report.h"

namespace holdfast::inline v1::internal {

// Room, kind, mount; needs no folder and changes nothing.
void look_at_volume(const FileSystem& file_system, const std::filesystem::path& directory,
                    VolumeReport& report);
void try_calls(ProbeFolder& folder, VolumeReport& report);

}  // namespace holdfast::inline v1::internal
