// A file of rank 0's volume in every rank's memory. Costs a rank that receives memory for the file, as long
// as it keeps it.
//
// Errors: Error and IoError of the file and of Companions::broadcast. Threads: the training thread; reading a
// received file, any.
#pragma once

#include <cstdint>
#include <memory>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1::internal {

// Collective: rank 0 sends, all others receive as many bytes.
void send_file(Companions& companions, const File& file);
std::unique_ptr<File> receive_file(Companions& companions, std::uint64_t bytes);

}  // namespace holdfast::inline v1::internal
