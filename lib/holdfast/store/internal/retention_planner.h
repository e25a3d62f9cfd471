// What retention may delete, found without changing anything: the lineage's files, what they tell of
// themselves, and rule 4 of store/commit.h.
//
// A committed file never changes, so its head is read once per process, and only when a policy or the newest
// finite one asks for it.
//
// Errors: IoError. Threads: one at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/retention.h"

namespace holdfast::inline v1::internal {

class RetentionPlanner {
 public:
  // All of them outlive this object.
  RetentionPlanner(Verifier& verifier, const Clock& clock, Retention keep)
      : verifier_(verifier), clock_(clock), keep_(std::move(keep)) {}

  // This attempt wrote that file just now, or has verified all of it.
  void wrote(const CheckpointInfo& checkpoint);
  void verified(const CheckpointInfo& checkpoint);
  bool trusts(FileId id) const { return trusted_.contains(id); }

  struct Plan {
    std::map<FileId, std::string> stay;  // with the reason
    std::vector<FileId> go;              // oldest first
    std::map<FileId, std::string> left;  // in the way of neither: left alone, with the reason
  };
  // Of one lineage a process, which only grows. `newest_acknowledged`: only what is older may go.
  Plan plan(Directory& run, const Lineage& lineage, FileId newest_acknowledged);

  // Looks at every byte of the newest files until two are trusted. What is not good is left alone from then
  // on.
  void verify_newest(Directory& run, const Lineage& lineage);

 private:
  RetentionView view_of(Directory& run, const Lineage& lineage, FileId newest_acknowledged);
  // The newest finite file is the only reason for which something older may go.
  bool is_needed(const RetentionView& view) const;
  // Every byte of it, now, from the device.
  bool holds(Directory& run, FileId id);
  void forget_deleted(Directory& run, const Lineage& lineage);
  std::vector<FileId> files_of(const Directory& run, const Lineage& lineage) const;
  void verify(Directory& run, FileId id, bool uncached = false);
  std::optional<FileId> newest_finite(Directory& run, const std::vector<FileId>& present);
  bool finite(Directory& run, FileId id);
  std::map<FileId, KeepFacts> facts(Directory& run, const std::vector<FileId>& present);
  void say_unknown_metrics(const std::map<FileId, KeepFacts>& facts);
  // nullopt: the file is gone.
  const Verdict* head(Directory& run, FileId id);
  std::optional<Verdict> inspect_all(Directory& run, FileId id, bool uncached = false);
  std::optional<Verdict> inspect(Directory& run, FileId id, Verifier::Depth depth, bool uncached = false);
  // Of what the volume refuses to read: it is never deleted, and protects nothing.
  void set_aside(FileId id, const IoError& error);
  std::string why_left(Directory& run, FileId id);

  Verifier& verifier_;
  const Clock& clock_;
  const Retention keep_;
  std::map<FileId, bool> trusted_;        // whether finite
  std::map<FileId, bool> others_finite_;  // of what others wrote, as far as it was asked
  std::map<FileId, Verdict> heads_;
  std::map<FileId, std::string> not_good_;  // found so by a look at it; why
  std::map<FileId, SteadyTime> written_;    // by this process
  Metrics known_;                           // also from files that are gone by now
  std::set<std::string> said_unknown_;      // metrics
};

}  // namespace holdfast::inline v1::internal
