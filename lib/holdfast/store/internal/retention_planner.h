// Finds what retention may delete, without changing anything: the lineage's files, their content, and rule 4
// of store/commit.h.
//
// A committed file never changes, so the planner reads a file's head once a process. It does so only if a
// policy, or the search for the newest finite file, needs it.
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

namespace holdfast { inline namespace v0_2 { namespace internal {

class RetentionPlanner {
 public:
  // All of them outlive this object.
  RetentionPlanner(Verifier& verifier, const Clock& clock, Retention keep)
      : verifier_(verifier), clock_(clock), keep_(std::move(keep)) {}

  // This attempt wrote the file just now, or verified all of it.
  void wrote(const CheckpointInfo& checkpoint);
  void verified(const CheckpointInfo& checkpoint);
  bool trusts(FileId id) const { return trusted_.contains(id); }

  struct Plan {
    std::map<FileId, std::string> stay;  // with the reason
    std::vector<FileId> go;              // oldest first
    std::map<FileId, std::string> left;  // neither kept by a policy nor deletable, with the reason
  };
  // Only files older than `newest_acknowledged` may go. If `keep` reads metrics, which are known by step,
  // `lineage` is the same in all calls of a process, except that it grows.
  Plan plan(Directory& run, const Lineage& lineage, FileId newest_acknowledged);

  // Verifies every byte of the newest files until two are trusted. Files that fail are left alone from then
  // on.
  void verify_newest(Directory& run, const Lineage& lineage);

 private:
  RetentionView view_of(Directory& run, const Lineage& lineage, FileId newest_acknowledged);
  // True if the newest finite file alone justifies the deletion of an older one.
  bool is_needed(const RetentionView& view) const;
  // Verifies every byte of the file again, from the device.
  bool holds(Directory& run, FileId id);
  void forget_deleted(Directory& run, const Lineage& lineage);
  std::vector<FileId> files_of(const Directory& run, const Lineage& lineage) const;
  void verify(Directory& run, FileId id, bool uncached = false);
  std::optional<FileId> newest_finite(Directory& run, const std::vector<FileId>& present);
  bool finite(Directory& run, FileId id);
  std::map<FileId, KeepFacts> facts(Directory& run, const std::vector<FileId>& present);
  void say_unknown_metrics(const std::map<FileId, KeepFacts>& facts);
  // nullptr: the file is gone.
  const Verdict* head(Directory& run, FileId id);
  std::optional<Verdict> inspect_all(Directory& run, FileId id, bool uncached = false);
  std::optional<Verdict> inspect(Directory& run, FileId id, Verifier::Depth depth, bool uncached = false);
  // Marks a file that the volume cannot read. It is never deleted, and protects no other file.
  void set_aside(FileId id, const IoError& error);
  std::string why_left(Directory& run, FileId id);

  Verifier& verifier_;
  const Clock& clock_;
  const Retention keep_;
  std::map<FileId, bool> trusted_;          // value: is it finite
  std::map<FileId, bool> others_finite_;    // of files that others wrote, as far as the question came up
  std::map<FileId, Verdict> heads_;         // cache
  std::map<FileId, std::string> not_good_;  // failed a check; value: why
  std::map<FileId, SteadyTime> written_;    // by this process
  Metrics known_;                           // includes values from files that are gone
  std::set<std::string> said_unknown_;      // metrics that were logged as unknown
};

}}}  // namespace holdfast::v0_2::internal
