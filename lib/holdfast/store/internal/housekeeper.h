// What is done to the run directory after an acknowledgement: damaged files are moved aside, superfluous ones
// deleted. Rules 4 and 5 of store/commit.h. Every step is optional: a crash, or a failure, between any two of
// them leaves a directory that the next round finishes.
//
// Errors: IoError, SupersededError; what was not done by then is done by a later round.
// Threads: one at a time. Durability: none needed; a deletion that a crash takes back is done again.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "holdfast/store/attempt.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/retention.h"

namespace holdfast::inline v1::internal {

class Housekeeper {
 public:
  // All of them outlive this object.
  Housekeeper(RunDirectory& directory, Attempt& attempt, Verifier& verifier, Retention keep)
      : directory_(directory), attempt_(attempt), verifier_(verifier), keep_(keep) {}

  // This attempt wrote or verified that file.
  void trust(FileId id, bool finite) { trusted_[id] = finite; }

  // Both require an acknowledged commit of this attempt.
  void move_damaged(const std::vector<FileId>& damaged);
  void delete_superfluous(const Lineage& lineage, FileId newest_acknowledged);

 private:
  std::optional<FileId> newest_finite(const std::vector<FileId>& present);
  bool finite(FileId id);
  std::optional<Verdict> inspect(FileId id, Verifier::Depth depth);

  RunDirectory& directory_;
  Attempt& attempt_;
  Verifier& verifier_;
  const Retention keep_;
  std::map<FileId, bool> trusted_;        // whether finite
  std::map<FileId, bool> others_finite_;  // of what others wrote, as far as it was asked
};

}  // namespace holdfast::inline v1::internal
