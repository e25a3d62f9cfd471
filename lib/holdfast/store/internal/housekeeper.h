// Tidies the run directory after an acknowledgement: moves damaged files aside and deletes superfluous ones.
// Rules 4 and 5 of store/commit.h. Every step is optional: after a crash or a failure between two steps, the
// next round finishes. A file that cannot be moved or deleted stays, and the others are tidied.
//
// Errors: IoError: the first one, after all files were tried. SupersededError: at once. A later round does
// what is left.
// Threads: one at a time. Durability: none needed; if a crash undoes a deletion, a later round repeats it.
#pragma once

#include <span>
#include <string>
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

  // Takes out of `damaged` what it moved: a mirror may commit a good copy under that name.
  void move_damaged(std::vector<FileId>& damaged);
  // Deletes oldest first, so that every intermediate set of files is one that retention may leave.
  void carry_out(std::span<const FileId> go);

 private:
  void move_damaged(FileId id);
  void limit_damaged();
  void unlink_all(const std::vector<std::string>& names);

  RunDirectory& directory_;
  Attempt& attempt_;
  BlockReaper& reaper_;
};

}}}  // namespace holdfast::v0_2::internal
