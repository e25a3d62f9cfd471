// What is done to the run directory after an acknowledgement: damaged files are moved aside, superfluous ones
// deleted. Rules 4 and 5 of store/commit.h. Every step is optional: a crash, or a failure, between any two of
// them leaves a directory that the next round finishes.
//
// Errors: IoError, SupersededError; what was not done by then is done by a later round.
// Threads: one at a time. Durability: none needed; a deletion that a crash takes back is done again.
#pragma once

#include <span>
#include <vector>

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/internal/retention_planner.h"
#include "holdfast/store/internal/run_directory.h"

namespace holdfast::inline v1::internal {

class Housekeeper {
 public:
  // All of them outlive this object.
  Housekeeper(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper)
      : directory_(directory), attempt_(attempt), reaper_(reaper) {}

  void move_damaged(const std::vector<FileId>& damaged);
  // Oldest first, so that what is left at any moment is a state that retention may leave.
  void carry_out(std::span<const FileId> go);

 private:
  RunDirectory& directory_;
  Attempt& attempt_;
  BlockReaper& reaper_;
};

}  // namespace holdfast::inline v1::internal
