// Measures how fast a volume writes bytes and commits files, with the calls that checkpoints use.
//
// Errors: IoError; Error with ExitCode::interrupted. Threads: called by one; two threads write.
#pragma once

#include "holdfast/io/internal/probe_folder.h"
#include "holdfast/io/internal/stall_watch.h"
#include "holdfast/io/volume_report.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Throws Error with ExitCode::interrupted if `go_on` returns false.
void require_going_on(const ProbeOptions& options);

VolumeReport::WriteSpeed measure_writing(ProbeFolder& folder, std::uint64_t bytes,
                                         const ProbeOptions& options, StallWatch& watch);
VolumeReport::CommitSpeed measure_commits(ProbeFolder& folder, const ProbeOptions& options,
                                          StallWatch& watch);

}}}  // namespace holdfast::v0_2::internal
