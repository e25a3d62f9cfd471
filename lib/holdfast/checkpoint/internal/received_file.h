// A file of rank 0's volume, or its head, in every rank's memory. Costs a rank that receives memory for the
// file, which can become the image of the state (FileVerifier::load_in).
//
// Errors: Error and IoError of the file and of Companions::broadcast. Threads: the training thread; reading a
// received file, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/checkpoint/companions.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast::inline v1::internal {

// Collective: rank 0 sends, all others receive as many bytes. Null without `keep`.
void send_file(Companions& companions, const File& file);
std::shared_ptr<Arena> receive_file(Companions& companions, std::uint64_t bytes, bool keep);
// What was received, to be read as a file.
std::unique_ptr<File> file_of(std::shared_ptr<Arena> bytes);
// A file of that size of which no more than its first bytes are there.
std::unique_ptr<File> head_of_file(std::vector<std::byte> head, std::uint64_t size);

}  // namespace holdfast::inline v1::internal
