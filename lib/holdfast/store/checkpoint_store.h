// A run directory on a volume: committed checkpoints, claims, run state. It commits opaque files atomically
// and durably, finds the newest one that verifies, applies retention, and fences off older attempts.
// store/commit.h has the numbered rules.
//
// Order of use: preflight() → claim() → recover() → trial_commit() → commit()… A reader (`holdfast ls`) calls
// only preflight() or list(); those change nothing.
//
// Errors: IoError (74) if the volume refuses; RefusedError (78); SupersededError (76) from any mutating call
// once a newer claim exists; Error for calls out of order. After a failed commit or state write, the next one
// opens the directory anew, so a failed fsync and a volume that goes and comes back cost single saves.
// Threads: commit, retention and state writes by one thread at a time (the writer's).
// Durability: when commit() returns, the checkpoint survives power loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/retention.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

struct CheckpointInfo {
  std::int64_t step = 0;
  AttemptNumber attempt = 0;
  std::string name;  // within the run directory
  std::uint64_t bytes = 0;
  Ancestry ancestry = {};
  Branches branches = {};
  bool finite = true;
  Metrics metrics = {};                           // as recorded in the content
  std::optional<std::int64_t> unix_seconds = {};  // when the state was staged, by that machine's wall clock
};

struct Skipped {
  std::string name;
  std::string reason;
};

// The checkpoint that recovery chose, and the files that it skipped.
struct Selection {
  std::optional<CheckpointInfo> newest;  // nullopt: a fresh start
  std::vector<Skipped> skipped;
  // A starting point was given, and the newest checkpoint has grown from it: it was chosen instead.
  bool has_grown = false;
};

// Where to start: by default the newest checkpoint that verifies, or the user's choice (`--resume-from`). If
// the newest has grown from that choice (branch.h), the newest.
struct StartingPoint {
  std::optional<std::int64_t> step = {};  // the file of this step that the newest attempt wrote
  std::optional<std::string> file = {};   // a name in the run directory
  std::string outside = {};               // the path of a file elsewhere, which the caller reads; empty: none
  std::string word = {};                  // what followed "@": another word is another choice
  bool given() const { return step || file || !outside.empty(); }
};

// How many attempts keep their small files: enough for people to see what happened, and few enough that each
// check for newer claims, which lists them all, stays fast.
inline constexpr AttemptNumber kAttemptsKept = 100;

// What a commit reads back from the device after fsync: the head (a few ms), or the whole file.
enum class ReadBack { head, all };

struct StoreOptions {
  std::filesystem::path directory = {};  // the run directory
  bool allow_fresh = false;  // start over if checkpoints exist but none verifies; off: that would hide a loss
  StartingPoint start = {};  // default: the newest that verifies
  Retention keep = KeepLast{3};  // cost: three files, and one more while a save is written; retention.h
  // Mount point of the directory's volume. claim() throws IoError (ENODEV) if the directory lies on the
  // volume below the mount point. Empty: no check.
  std::filesystem::path mount = {};
  // preflight() and claim() refuse a directory that another user owns or may write to. Off here, because
  // tools only read; the Checkpointer sets it (CheckpointerOptions::start.trust_directory). Costs at most one
  // small file.
  bool only_ours = false;
  // A commit that finds the volume full first deletes what `keep` and rule 4 allow, and is tried once more.
  bool makes_room = false;
  ReadBack read_back = ReadBack::head;  // `all` costs one more read of the file a save
  // A start removes claims, states and ledgers of older attempts. At least 1, the own attempt.
  AttemptNumber attempts_kept = kAttemptsKept;
};

struct CommitRequest {
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // size of the file; reserved before the first byte, so that ENOSPC comes early
  Ancestry ancestry;        // as the file's content records it
  // Writes the whole file through the given handle (opened with create_direct), head last. It neither syncs
  // nor closes.
  std::function<void(File&)> write = {};
  // The file is a copy of this checkpoint, of this or an older attempt, and gets its name. Unset: the file is
  // this attempt's, of `step`.
  std::optional<FileId> copy_of = {};
  // With copy_of: a good copy may have that name, which no sync has made durable. The name never goes away.
  bool replaces_itself = false;
  // Called with the file's name before `write`, for other processes that write into the file meanwhile.
  std::function<void(const std::string&)> opened = {};
  // Called when the file is durable and was read back, just before it gets its name: it may free that name.
  std::function<void()> before_rename = {};
};

// Retention's verdict on every name of a directory.
struct HOLDFAST_EXPORT RetentionReport {
  enum class Fate { stays, goes, left_alone };
  struct File {
    std::string name;
    std::optional<FileId> id;  // set for checkpoints
    std::uint64_t bytes = 0;
    Fate fate = Fate::left_alone;
    std::string reason;
  };
  std::vector<File> files;  // checkpoints, newest first, then other names except the store's small files
  std::uint64_t bytes_that_go() const;
};

class HOLDFAST_EXPORT CheckpointStore {
 public:
  CheckpointStore(FileSystem& file_system, Clock& clock, StoreOptions options, Verifier& verifier);
  ~CheckpointStore();

  // Finds where a start would begin, without changing anything (`only_ours` may make and remove one small
  // file). A missing directory means a fresh start. `skipped` names damaged files; a file counts as damaged
  // only after repeated uncached reads.
  Selection preflight();
  // Creates the directory if it is missing, claims the next attempt number, and so fences off older attempts.
  // `by` names a program that does not train. `only`, unless 0: claim that number, or throw RefusedError.
  // `least`: the number is that or higher. Returns the number. Call it once.
  AttemptNumber claim(const std::string& by = {}, AttemptNumber only = 0, AttemptNumber least = 0);
  // Claims one more number for this object, which goes on with its commits and keeps attempt(): a mirror
  // claims it for a trainer that has another run directory. SupersededError if somebody else has a newer
  // claim.
  AttemptNumber claim_further(const std::string& by, AttemptNumber only, AttemptNumber least);
  // The highest number that this object has claimed, also by a call that threw: the claim is there then, and
  // may not be durable. 0: none.
  AttemptNumber highest_own() const;
  // Requires claim(). Removes temporary files of older attempts, then lists and verifies again.
  Selection recover();

  // Renames the file so that a copy can take its name. Returns the new name; empty: no such file. A file
  // that the caller or recover() `found_damaged` becomes .damaged, or is deleted if an earlier one has that
  // name. Any other may be good: it becomes .damaged-2 or higher, which nothing deletes. Requires claim().
  std::string set_aside(FileId id, bool found_damaged);

  AttemptNumber attempt() const;                                 // 0 before claim()
  std::unique_ptr<File> open(const CheckpointInfo& checkpoint);  // to read; nullptr: it is gone

  // Makes the calls of a commit with one page under temporary names. So a volume on which no commit can work
  // is known before the first step. Leaves no file; costs one small fsync. Throws RefusedError (78) if the
  // volume ignores the meaning of a call, or lacks one (rename without replacing): it must say so twice, and
  // recover() must have found no checkpoint. A full volume only gets a warning.
  void trial_commit();
  CheckpointInfo commit(const CommitRequest& request);  // returns once acknowledged; requires recover()
  // True if this attempt has acknowledged that step already, so that it need not be written again.
  bool holds(std::int64_t step) const;
  // Deletes what `keep` and rule 4 allow. The writer calls it after an acknowledgement. A file that cannot be
  // deleted, or moved aside, stays: the first such IoError is thrown after all others are deleted.
  void apply_retention();
  // The same, but a file that cannot be deleted fails each time, and a log needs it once: an IoError like the
  // one before is passed over.
  void apply_retention_told_once();
  // The same for a process that is about to end: nothing where that would read whole files.
  void apply_retention_at_end();
  // For a directory where nobody trains (store/prune.h). The newest checkpoint that verifies takes the place
  // of the newest acknowledged one; every byte of the newest files is verified until two are good.
  // plan_retention() requires preflight() or recover(), and changes nothing. prune() requires recover(), and
  // deletes what it reports.
  RetentionReport plan_retention();
  RetentionReport prune();

  // Throws SupersededError if a newer attempt has claimed the directory.
  void check_claim();
  // Opens the directory anew; the claims stay this object's. Requires claim(). IoError if the claim does not
  // lie there. commit() does it after a failure; a mirror also before its other calls. A copy whose name was
  // made before, and is not acknowledged, must be made once more (commit.h, rule 2).
  void open_again();
  // Makes the names in the directory durable that were made since it was opened.
  void sync_names();
  // Fills in attempt, host and boot id; see run_state.h. A successor that claims once an `interrupted` or
  // `failed` end is durable is no error of the call.
  void write_run_state(const RunState& state);
  // Appends one line to this attempt's ledger. False: it could not be written, which is logged once and never
  // thrown; the next line opens the file anew. True for an attempt that is superseded, which writes nothing.
  bool append_ledger(const std::string& json_line);
  // Error in place of false: as Ledger and LossRing want it, which then keep the line.
  void write_ledger(const std::string& json_line);

  // Every file with a checkpoint's name, newest first. The content is not verified.
  std::vector<CheckpointInfo> list();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}}  // namespace holdfast::v0_2
