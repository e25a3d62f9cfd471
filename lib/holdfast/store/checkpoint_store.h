// A run directory on a volume: committed checkpoints, claims, run state. Commits opaque files atomically and
// durably, finds the newest that verifies, keeps what retention says, and fences off older attempts. The
// rules it keeps are numbered in store/commit.h.
//
// Order of use: preflight() → claim() → recover() → commit()… A reader (`holdfast ls`) calls preflight or
// list alone; those never change anything.
//
// Errors: IoError (74) for what the volume refuses; RefusedError (78); SupersededError (76) from any mutating
// call as soon as a newer claim is seen. After a failed directory fsync every later commit fails.
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
#include "holdfast/io/file_system.h"
#include "holdfast/store/retention.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

struct CheckpointInfo {
  std::int64_t step = 0;
  AttemptNumber attempt = 0;
  std::string name;  // within the run directory
  std::uint64_t bytes = 0;
  Ancestry ancestry = {};
  bool finite = true;
  Metrics metrics = {};                           // as the content tells them
  std::optional<std::int64_t> unix_seconds = {};  // when its state was staged, by that machine's clock
};

struct Skipped {
  std::string name;
  std::string reason;
};

// What recovery chose, and what it stepped past.
struct Selection {
  std::optional<CheckpointInfo> newest;  // nullopt: a fresh start
  std::vector<Skipped> skipped;
};

// Which checkpoint to start from: the newest that verifies, or the user's choice (`--resume-from`).
struct StartingPoint {
  std::optional<std::int64_t> step = {};  // the newest attempt's file of this step
  std::optional<std::string> file = {};   // a name in the run directory
};

// Attempts whose small files stay: enough for people to see what happened, few enough to list at every look.
inline constexpr AttemptNumber kAttemptsKept = 100;

enum class ReadBack { head, all };  // after fsync, uncached: a few ms, or one more read of the file

struct StoreOptions {
  std::filesystem::path directory = {};
  bool allow_fresh = false;  // start over where checkpoints are held but none verifies
  StartingPoint start = {};
  Retention keep = KeepLast{3};  // policies that combine: retention.h
  ReadBack read_back = ReadBack::head;
  // The oldest file that `keep` lets go is not deleted but becomes the next save's temporary file,
  // overwritten in place: no blocks are allocated and none are freed, which is what a commit waits for on a
  // slow thin volume, or one mounted with `discard`. Costs an fsync of the directory after each save, off its
  // path, and the space of one more file between saves, given back when the store ends. A reader that has the
  // old file open sees it change, and calls it damaged. A file with another name (a hard link) is deleted as
  // ever.
  bool recycle = false;
  // Claims, states and ledgers of older attempts are removed at a start. At least 1, the own.
  AttemptNumber attempts_kept = kAttemptsKept;
};

struct CommitRequest {
  std::int64_t step = 0;
  std::uint64_t bytes = 0;  // reserved before the first byte is written
  Ancestry ancestry;        // as the file's content records it
  // Writes the whole file through the handle it is given (opened create_direct), head last. No sync, no
  // close.
  std::function<void(File&)> write = {};
  // Told the file's name before `write` is called, for others who write into it while `write` runs.
  std::function<void(const std::string&)> opened = {};
};

// What retention makes of a directory, name by name.
struct RetentionReport {
  enum class Fate { stays, goes, left_alone };
  struct File {
    std::string name;
    std::optional<FileId> id;  // of a checkpoint
    std::uint64_t bytes = 0;
    Fate fate = Fate::left_alone;
    std::string reason;
  };
  std::vector<File> files;  // checkpoints, newest first, then all other names but the store's own
  std::uint64_t bytes_that_go() const;
};

class CheckpointStore {
 public:
  CheckpointStore(FileSystem& file_system, Clock& clock, StoreOptions options, Verifier& verifier);
  ~CheckpointStore();

  // Read-only. Finds where a start would begin. A directory that does not exist yet is a fresh start.
  // Damage is named in `skipped`, and is believed only after a second, uncached look.
  Selection preflight();
  // Creates the directory when missing, claims the next attempt number, fences off older attempts.
  // `by`: a program that does not train. `only`: that number, or RefusedError.
  AttemptNumber claim(const std::string& by = {}, AttemptNumber only = 0);
  // After claim(): removes temporary files of older attempts, lists and verifies again.
  Selection recover();

  AttemptNumber attempt() const;  // 0 before claim()
  std::unique_ptr<File> open(const CheckpointInfo& checkpoint);

  CheckpointInfo commit(const CommitRequest& request);
  // Makes a temporary file with room for so many bytes as commit() does, lets `write` fill it, syncs it and
  // removes it: for whoever wants to know how long that takes. Publishes nothing and acknowledges nothing; a
  // failure says nothing about the next commit. Errors as commit().
  void try_out(std::uint64_t bytes, const std::function<void(File&)>& write);
  // True when this attempt has already acknowledged that step: it is not written again.
  bool holds(std::int64_t step) const;
  // Deletes what `keep` and rule 4 allow. Called by the writer after an acknowledgement.
  void apply_retention();
  // The same where nobody trains (store/prune.h), with the newest checkpoint that verifies in the place of
  // the newest acknowledged: every byte of the newest files is verified until two are good. The first
  // requires preflight() or recover() and changes nothing, the second requires recover() and does what it
  // reports.
  RetentionReport plan_retention();
  RetentionReport prune();

  // Throws SupersededError when a newer attempt has claimed the directory.
  void check_claim();
  void write_run_state(const RunState& state);
  // Appends one line to this attempt's ledger. Best effort: a failure is logged once, never thrown.
  void append_ledger(const std::string& json_line);
  // The ledger lines of one attempt, torn last line skipped. Empty when there is none.
  std::vector<std::string> read_ledger(AttemptNumber attempt);

  // Everything that looks like a checkpoint, newest first; content not verified.
  std::vector<CheckpointInfo> list();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace holdfast::inline v1
