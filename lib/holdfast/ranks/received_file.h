// Sends a file of rank 0's volume, or its head, into every rank's memory. Cost for a receiving rank: memory
// for the file, which can become the image of the state (FileVerifier::load_in).
//
// Errors: Error and IoError from the file and from RankChannel::broadcast. Threads: the training thread; a
// received file may be read on any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Collective: rank 0 sends, and all others receive as many bytes. Returns nullptr unless `keep`.
void send_file(RankChannel& channel, const File& file);
std::shared_ptr<Arena> receive_file(RankChannel& channel, std::uint64_t bytes, bool keep);
// The received bytes as a File.
std::unique_ptr<File> file_of(std::shared_ptr<Arena> bytes);
// A File of that size of which only the first bytes exist.
std::unique_ptr<File> head_of_file(std::vector<std::byte> head, std::uint64_t size);

}}}  // namespace holdfast::v0_2::internal
