// How a file becomes a checkpoint that survives every failure that this design names: the rules of the store.
// All sources of this module follow them. Each rule names the tests (tests/unit/store) that fail if it is
// broken. Two tests cover all rules: Crashes (a power cut at every operation) and Faults (a failure of every
// operation).
//
//  1. Inside the run directory only io/file_system.h touches the disk.
//     [tests/layering; crash/syscall_trace_test; Rule5Recovery.LookingChangesNothing]
//  2. Order of a commit: create a temporary file whose name carries the attempt → reserve its space → write,
//     head last → fsync, close → read back from the device → look for newer claims → rename to a unique name,
//     never over another → fsync the directory → look again → acknowledge. Only then may retention run. A
//     step that this attempt acknowledged is not written again. After a failed fsync of the directory nothing
//     is acknowledged until the directory is opened anew; then only what is renamed after that. The kernel
//     may have dropped a name that an fsync could not write, and a later fsync says nothing about it. Such a
//     checkpoint, or a mirror's copy, is written once more, and replaces itself. [Rule2Commit.*, Crashes.*;
//     in tests/unit/mirror Home.*, NamesInHome.*]
//  3. After a failed write, fsync or close the store abandons the file. It never retries an fsync.
//     [Rule3Commit.*]
//  4. Retention orders files as recovery does. It deletes only in its own lineage, and only files older than
//     a newer acknowledged file. It never goes below two files that this attempt wrote or verified. It never
//     deletes the newest finite file, a file of a newer format, or a file whose content is not what its name
//     says. A file that cannot be deleted stays, and keeps no other. A commit that finds no room before this
//     attempt has acknowledged any may delete as a prune does: the start, of which recover() has verified
//     every byte, takes the place of the newer file. A start that the user chose does not. [Rule4Retention.*,
//     Rule4Room.*, Stuck.*]
//  5. Recovery believes content alone. It believes damage only after two more looks that read the device. An
//     error of the system is not damage: the start ends with 74. One exception: recovery skips a file that
//     ends three looks with an error of that file alone (EIO, ENODATA and a few more: internal/bad_file.h),
//     with a log line, if an older file verifies; it never moves or deletes that file. Only for a verified
//     copy from a HOME it is renamed. It never skips a newer format. After this attempt's first
//     acknowledgement it moves damaged files aside, and keeps two of them; if nothing verified, it moves
//     none. [Rule5Recovery.*, Rule5Unreadable.*, Rule5UnreadableWith.*, Faults.AtEveryLook; in
//     tests/unit/mirror UnreadableHere.*]
//  6. Fencing: claim by O_EXCL, fsync; unlink the temporary files of older attempts, fsync; only then list
//     and verify. Look for newer claims before a rename, an acknowledgement, an unlink and a state write. A
//     newer claim, or a checkpoint's temporary file that vanished, means superseded: acknowledge nothing,
//     touch only its own temporary file. State files fence nothing. A temporary file that already has its
//     final name has not vanished: a file server may repeat a rename. [Rule6Claim.*, Rule6Fence.*]
//  7. If checkpoints exist, or a commit is recorded, and nothing verifies, a start is refused before any
//     claim. [Rule7Held.*]
//  8. Names come from integers only. They are opened beneath the directory, and never through links.
//     [Rule8Names.*, Rule8Links.*, PosixStore.OnlyTheOwnerMayReadTheFiles]
//  9. The store never reports success before the acknowledgement. After a failed commit it is ready for the
//     next one. [Rule9Commit.*, Faults.OneFaultCostsOneSave]
// 10. An attempt writes only its own states, progress and ledgers; readers believe the highest attempt. No
//     rule reads the progress (run_progress.h), which is written in place and never synced. [Rule10State.*,
//     Progress.*]
// 11. Data that an fsync covered is there after a crash: the one assumption. The verifier finds torn and
//     rotten bytes. [Rule11Commit.*]
// 12. No rule has this number.
// 13. Others write into a temporary file only while `write` runs, by the name that `opened` was told. When it
//     returns, each of them has synced and closed it. When it throws, the file is never renamed, and no later
//     file gets that name. So no descriptor of theirs reaches a checkpoint: ranks/shared_write.h.
//     [SharedWrite.*]
// 14. An attempt's first file is a trial. It writes a page, reads it back, and renames it from one temporary
//     name to another; a rename of a second file must not replace it. So a trial is never taken for a
//     checkpoint, and after a crash the sweep of rule 6 removes it. A volume that answers "cannot" twice is
//     refused before the first step. If a checkpoint lies there, commits have worked, and that answer ends
//     the start with 74. [Rule14Trial.*]
//
// Errors: IoError, SupersededError; exceptions of the request's `write`. Threads: one at a time.
// Durability: when commit() returns, the checkpoint survives power loss.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

class Committer {
 public:
  // All references outlive this object.
  Committer(internal::RunDirectory& directory, Attempt& attempt, Verifier& verifier,
            internal::BlockReaper& reaper, ReadBack read_back)
      : directory_(directory),
        attempt_(attempt),
        verifier_(verifier),
        reaper_(reaper),
        read_back_(read_back) {}

  CheckpointInfo commit(const CommitRequest& request);
  // Rule 14. RefusedError: this volume can never hold a checkpoint. If one lies there, an errno stays
  // IoError.
  void trial_commit(bool holds_checkpoint);
  // The directory was opened anew: a name that was made before may be lost (rule 2).
  void doubt_names() { names_in_doubt_ = true; }
  // What this attempt has acknowledged: the 16 highest.
  const std::map<FileId, CheckpointInfo>& acknowledged() const { return acknowledged_; }

 private:
  std::string write_temporary(const CommitRequest& request);
  std::unique_ptr<File> open_temporary(const CommitRequest& request);
  std::unique_ptr<File> open_new(std::string_view label);
  std::string new_name(std::string_view label);
  void try_calls_twice(bool holds_checkpoint);
  void try_calls();
  std::string write_trial();
  void rename_trial(const std::string& from, const std::string& to);
  template <class Work>
  void with_room(const Work& work);
  FileId id_of(const CommitRequest& request) const;
  CheckpointInfo read_back(const std::string& name, const CommitRequest& request);
  void publish(const std::string& temporary, const CommitRequest& request, CheckpointInfo& checkpoint);
  void remove_abandoned() noexcept;

  internal::RunDirectory& directory_;
  Attempt& attempt_;
  Verifier& verifier_;
  internal::BlockReaper& reaper_;
  const ReadBack read_back_;
  std::map<FileId, CheckpointInfo> acknowledged_;
  bool names_in_doubt_ = false;
  std::uint64_t serial_ = 0;              // makes the name of each temporary file new
  std::vector<std::string> temporaries_;  // made by this process and not renamed
};

}}  // namespace holdfast::v0_2
