// How fast a volume takes bytes and names, written as checkpoints are.
//
// Errors: IoError; Error with ExitCode::interrupted. Threads: one; two write.
#pragma once

#include "holdfast/io/internal/probe_folder.h"
#include "holdfast/io/internal/stall_watch.h"
#include "holdfast/io/volume_report.h"

namespace holdfast::inline v1::internal {

// Throws what `go_on` asks for.
void require_going_on(const ProbeOptions& options);

VolumeReport::WriteSpeed measure_writing(ProbeFolder& folder, std::uint64_t bytes,
                                         const ProbeOptions& options, StallWatch& watch);
VolumeReport::CommitSpeed measure_commits(ProbeFolder& folder, const ProbeOptions& options,
                                          StallWatch& watch);

}  // namespace holdfast::inline v1::internal
