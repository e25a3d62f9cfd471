// Bugs to plant between the store and a disk, to see that the lane sees them.
//
// Threads: as the inner file system. Lifetime: the inner one outlives it.
#pragma once

#include <memory>

#include "holdfast/io/file_system.h"

namespace holdfast::test::faults {

enum class Bug {
  syncs_again,         // a failed sync of a file is tried once more, and believed
  never_syncs,         // success without a sync of the file
  swallows_failures,   // of writes and closes
  forgets_directories  // success without a sync of the directory
};

std::unique_ptr<FileSystem> with_bug(FileSystem& inner, Bug bug);

}  // namespace holdfast::test::faults
