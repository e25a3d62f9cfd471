// Finds out which ranks see rank 0's run directory, by a nonce. A path that exists on every host may be a
// local disk on each.
//
// Rank 0 writes a file with a random number under a temporary name. A rank sees the volume if it finds that
// file with that number and may open it for writing; it retries, because network file systems show new names
// late. Collective, at the start; two messages a rank.
//
// Errors: a rank that cannot look does not see, and reports why. If rank 0 cannot write the file (a full
// disk) it logs that, and nobody sees. Exceptions of RankChannel pass through. Threads: one.
// Durability: the nonce is synced, so that a network file system's client sends it to the server; it is
// removed at the end.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

struct SharedVolume {
  std::vector<bool> sees;            // by rank; identical on all ranks
  std::vector<std::string> reasons;  // by rank: why it does not see; empty if it does
};

struct SharedVolumeOptions {
  Duration look_for = std::chrono::seconds(10);  // retries of one rank; NFS caches names for seconds
  Duration answer = std::chrono::minutes(1);     // timeout of a message
};

// Call on every rank. `attempt` is rank 0's claimed attempt on rank 0, and 0 on the others.
SharedVolume find_shared_volume(FileSystem& files, const std::filesystem::path& run, AttemptNumber attempt,
                                RankChannel& channel, Clock& clock, const SharedVolumeOptions& options = {});

}}  // namespace holdfast::v0_2
