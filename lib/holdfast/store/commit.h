// How a file becomes a checkpoint that survives everything this design names: the rules of the store. Every
// source of this module keeps them; behind each stand the tests (tests/unit/store) that fail when it is
// broken. Behind all of them: Crashes (a power cut at every operation), Faults (a failure of every
// operation).
//
//  1. Inside the run directory only io/file_system.h touches the disk.
//     [tests/layering; crash/syscall_trace_test; Rule5Recovery.LookingChangesNothing]
//  2. Order of a commit: create a temporary file whose name carries the attempt → reserve its space → write,
//     head last → fsync, close → read back from the device → look for newer claims → rename to a unique name,
//     never over another → fsync the directory → look again → acknowledge. Only then may retention run. A
//     step that this attempt acknowledged is not written again. After a failed fsync of the directory this
//     process acknowledges nothing more. [Rule2Commit.*, Crashes.*]
//  3. After a failed write, fsync or close the file is abandoned; no fsync is ever tried twice.
//  [Rule3Commit.*]
//  4. Retention orders as recovery does. It deletes only in its own lineage, only what is older than a newer
//     acknowledged file, never below two files that this attempt wrote or verified, never the newest finite
//     one, never a file of a newer format or with another content than its name says. [Rule4Retention.*]
//  5. Recovery believes content alone, and damage only when seen again, twice, from the device. What the
//  system
//     refuses is not damage. A newer format is never stepped past. Damaged files are moved aside after this
//     attempt's first acknowledgement, two are kept; where nothing verified, none is moved.
//     [Rule5Recovery.*, Faults.AtEveryLook]
//  6. Fencing: claim by O_EXCL, fsync; unlink the temporary files of older attempts, fsync; only then list
//  and
//     verify. Look for newer claims before a rename, an acknowledgement, an unlink and a state write. A newer
//     claim, or a temporary file that vanished, means superseded: acknowledge nothing, touch nothing but the
//     own temporary file. [Rule6Claim.*, Rule6Fence.*]
//  7. Where checkpoints are held, or a commit is recorded, and nothing verifies, a start is refused, before
//  any
//     claim. [Rule7Held.*]
//  8. Names come from integers only, are opened beneath the directory, and never through links.
//     [Rule8Names.*, Rule8Links.*, PosixStore.OursAlone]
//  9. No success is claimed before the acknowledgement; a failed commit leaves the store fit for the next
//  one.
//     [Rule9Commit.*, Faults.OneFaultCostsOneSave]
// 10. States and ledgers are written by their own attempt only; readers believe the highest attempt.
//     [Rule10State.*]
// 11. What an fsync covered is there after a crash: the one thing that is taken on trust. Torn and rotten
// bytes
//     are found by the verifier. [Rule11Commit.*]
// 12. A file is overwritten in place only under a temporary name of this attempt, only when retention may
// delete
//     it and it has no other name, only after the fsync that made its old name go, and after a look for newer
//     claims that found the temporary name still there. [Rule12Recycle.*]
// 13. Others write into a temporary file only while `write` runs, by the name that `opened` was told. When it
//     returns, each of them has synced and closed it; when it throws, the file is never renamed, and no file
//     ever gets that name again. So no descriptor of theirs reaches a checkpoint: checkpoint/shared_write.h.
//     [SharedWrite.*]
//
// Errors: IoError, SupersededError; whatever the request's write throws. Threads: one at a time.
// Durability: when commit() returns, the checkpoint survives power loss.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/internal/block_reaper.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

class Committer {
 public:
  // All of them outlive this object.
  Committer(internal::RunDirectory& directory, Attempt& attempt, Verifier& verifier,
            internal::BlockReaper& reaper, ReadBack read_back)
      : directory_(directory),
        attempt_(attempt),
        verifier_(verifier),
        reaper_(reaper),
        read_back_(read_back) {}

  CheckpointInfo commit(const CommitRequest& request);
  // A temporary file that is written, synced and removed again. It never takes the spare one.
  void try_out(std::uint64_t bytes, const std::function<void(File&)>& write);
  // What this attempt has acknowledged, by step; the highest 16 of them.
  const std::map<std::int64_t, CheckpointInfo>& acknowledged() const { return acknowledged_; }

  // Takes a checkpoint that retention may delete as the file that the next commit overwrites; durable when
  // this returns. False: delete it. Errors: as commit().
  bool recycle(FileId id);
  void drop_spare() noexcept;

 private:
  std::string write_temporary(const CommitRequest& request);
  std::unique_ptr<File> open_temporary(const CommitRequest& request);
  std::unique_ptr<File> open_new(std::string_view label);
  template <class Work>
  void with_room(const Work& work);
  std::unique_ptr<File> open_spare(std::uint64_t bytes);
  CheckpointInfo read_back(const std::string& name, const CommitRequest& request);
  void publish(const std::string& temporary, const CommitRequest& request, CheckpointInfo& checkpoint);
  void remove_abandoned() noexcept;

  internal::RunDirectory& directory_;
  Attempt& attempt_;
  Verifier& verifier_;
  internal::BlockReaper& reaper_;
  const ReadBack read_back_;
  std::map<std::int64_t, CheckpointInfo> acknowledged_;
  std::uint64_t serial_ = 0;              // makes the name of each temporary file new
  std::vector<std::string> temporaries_;  // that this process made and did not rename
  std::optional<std::string> spare_;      // what the next commit overwrites; its old name is durably gone
};

}  // namespace holdfast::inline v1
