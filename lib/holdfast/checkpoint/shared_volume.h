// Which ranks see rank 0's run directory: found by a nonce, not by hope. A path that exists on every host may
// be a local disk on each.
//
// Rank 0 puts a file with a random number into the directory, under a temporary name of its attempt (a
// successor sweeps it), and tells the others name and number. A rank sees the volume when it finds that file
// with that number, and may open it for writing: another user, or a mount that is read-only there, does not
// count. Network file systems show new names late, so it looks again for a bounded time, each time through a
// newly opened directory, which makes NFS ask the server.
//
// Collective, at the start: rank 0 tells, the others look and answer, rank 0 tells what it heard, and all
// know. Two messages a rank. Errors: a rank that cannot look does not see, and says why; where rank 0 cannot
// write the file (a full disk) it says so in its log, and nobody sees. What Companions throw is thrown on.
// Threads: one. Durability: the nonce is synced, so that a client of a network file system cannot keep it to
// itself; it is removed when all have looked.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/companions.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

struct SharedVolume {
  std::vector<bool> sees;            // by rank; the same on all ranks
  std::vector<std::string> reasons;  // by rank: why it does not; empty for those who do
};

struct SharedVolumeOptions {
  Duration look_for = std::chrono::seconds(10);  // until a rank that finds nothing gives up
  Duration answer = std::chrono::minutes(1);     // until a message must have come
};

// On every rank, with rank 0's attempt there (its directory exists, and is claimed) and 0 elsewhere.
SharedVolume find_shared_volume(FileSystem& files, const std::filesystem::path& run, AttemptNumber attempt,
                                Companions& companions, Clock& clock,
                                const SharedVolumeOptions& options = {});

}  // namespace holdfast::inline v1
