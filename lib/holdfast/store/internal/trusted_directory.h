// Refuses a run directory that another user owns or may write to. The digests of a checkpoint detect damage,
// not who wrote it: a user who can put a file there chooses what a run resumes from.
//
// The directory passes if this process's user or root owns it and others may not write. A group may write if
// this process is in it. Some servers decide about owners themselves (root squash, EFS access
// points). So the check makes a temporary file, and accepts the owner that this file gets; likewise the
// group, unless the directory is setgid. The file also shows whether the mount keeps modes at all (CIFS,
// drvfs and vboxsf may not). docs/operations.md#ownership is the user's view.
//
// Errors: RefusedError; IoError if the check itself fails (a full or sick volume). Threads: one.
#pragma once

#include "holdfast/store/internal/run_directory.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void require_trusted(const RunDirectory& directory);

}}}  // namespace holdfast::v0_2::internal
