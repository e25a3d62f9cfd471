// Tidies the run directory after an acknowledgement: moves damaged files aside and deletes superfluous ones.
// Rules 4 and 5 of store/commit.h. Every step is optional: after a crash or a failure between two steps, the
// next round finishes.
//
// Errors: IoError, SupersededError; a later round does what is left.
// Threads: one at a time. Durability: none needed; if a crash undoes a deletion, a later round repeats it.
#pragma once

#include <span>
#include <vector>

#include "holdfast/store/attempt.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/internal/retention_planner.h"
#include "holdfast/store/internal/run_directory.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class Housekeeper {
 public:
  // All of them outlive this object.
  Housekeeper(RunDirectory& directory, Attempt& attempt, BlockReaper& reaper)
      : directory_(directory), attempt_(attempt), reaper_(reaper) {}

  void move_damaged(const std::vector<FileId>& damaged);
  // Deletes oldest first, so that every intermediate set of files is one that retention may leave.
  void carry_out(std::span<const FileId> go);

 private:
  RunDirectory& directory_;
  Attempt& attempt_;
  BlockReaper& reaper_;
};

}}}  // namespace holdfast::v0_2::internal
