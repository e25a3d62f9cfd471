// A Directory on an open descriptor.
//
// Threads: const methods from any thread, the others by one thread at a time, as file_system.h says.
#pragma once

#include <memory>
#include <string>

#include "holdfast/io/internal/posix_calls.h"
#include "holdfast/io/posix_file_system.h"

namespace holdfast::inline v1::internal {

std::unique_ptr<Directory> make_posix_directory(Descriptor descriptor, std::string path,
                                                PosixOptions options);

}  // namespace holdfast::inline v1::internal
