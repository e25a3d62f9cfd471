// What has to happen before a trainer starts in a run directory that has a HOME: claim the attempt there, and
// fetch the newest good checkpoint if the run directory lacks it (a new machine, an empty disk).
//
// Order: claim in HOME → list HOME → fetch what is newer than the newest good file of the run directory, newest
// first, older ones if it is damaged → raise the run directory's attempts, so that the trainer claims the
// number that was won in HOME. Every byte of a fetched file is verified before it gets its name. After a crash
// at any point the next start repeats it with a higher number.
//
// Errors: IoError, HomeError: try again. RefusedError: checkpoints exist in HOME, none of them verifies, and
// the run directory has none; or a newer format. Exceptions of Pace pass through. Threads: one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

struct PreparedStart {
  AttemptNumber attempt = 0;               // the number that the trainer will claim
  std::vector<AttemptNumber> claims = {};  // all that were claimed in HOME for it
  std::optional<FileId> newest = {};       // where the trainer will begin; nullopt: a fresh start
  bool fetched = false;
  std::vector<Skipped> skipped = {};  // in HOME, and why
};

PreparedStart prepare_start(FileSystem& file_system, Verifier& verifier,
                            const std::filesystem::path& directory, Home& home, Pace& pace);

}}  // namespace holdfast::v0_2
