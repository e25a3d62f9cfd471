// A Directory on an open descriptor.
//
// Threads: as io/file_system.h says.
#pragma once

#include <memory>
#include <string>

#include "holdfast/io/internal/posix_calls.h"
#include "holdfast/io/posix_file_system.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

std::unique_ptr<Directory> make_posix_directory(Descriptor descriptor, std::string path,
                                                PosixOptions options);

}}}  // namespace holdfast::v0_2::internal
