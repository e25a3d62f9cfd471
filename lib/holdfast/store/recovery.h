// Finds the checkpoint to start from, by content alone. Names only give the order: newest first by (attempt,
// step). Time stamps, links and run states have no influence. It changes nothing on the disk.
//
// - Damage needs one bad look and two more that read the device. The result is cached, as files never change.
// - A file with another step or attempt than its name says is skipped; it is never moved or deleted.
// - An errno such as ESTALE, EACCES or ENOMEM says nothing about the file: IoError, and nothing is skipped.
// - EIO, or what O_DIRECT says in its place (internal/bad_file.h), in three looks: the file is skipped, with
//   a log line, if an older one verifies; otherwise IoError. It may be good: it is never moved or deleted.
//
// Errors: IoError. RefusedError if a newer format lies above the newest good file; if checkpoints exist and
// none verifies (unless allow_fresh); if the chosen starting point is missing or not good.
// Threads: one at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

// A directory entry with a checkpoint's name; it may be something else than a regular file.
struct Candidate {
  FileId id;
  std::string name;
  FileKind kind = FileKind::regular;
};

// All of them, newest first.
std::vector<Candidate> candidates_in(const Directory& run);

class Recovery {
 public:
  // `options` and `verifier` outlive this object.
  Recovery(const StoreOptions& options, Verifier& verifier) : options_(options), verifier_(verifier) {}

  // `attempts` may be nullptr.
  Selection select(Directory& run, Directory* attempts);
  // The files that the last select() skipped as damaged, newest first, without unreadable ones. Empty after a
  // fresh start: if nothing verifies, the cause may be the volume, so no file is moved.
  const std::vector<FileId>& damaged() const { return damaged_; }

 private:
  enum class Outcome { good, damaged, unreadable, misnamed, newer_format, vanished };
  struct Finding {
    Outcome outcome = Outcome::vanished;
    Verdict verdict;
    std::uint64_t bytes = 0;
    std::optional<IoError> refused = {};  // set if unreadable
  };
  static bool is_bad(const Finding& seen) {
    return seen.outcome == Outcome::damaged || seen.outcome == Outcome::unreadable;
  }

  Finding examine(Directory& run, const std::string& name, std::optional<FileId> id);
  Finding examine_once(Directory& run, const std::string& name, bool uncached,
                       Verifier::Depth depth = Verifier::Depth::full);
  // nullopt: a file vanished during its look, so the list is out of date.
  std::optional<Selection> newest_good(Directory& run, Directory* attempts);
  Selection newest_of_all(Directory& run, Directory* attempts);
  bool newest_has_grown(Directory& run);
  Selection chosen(Directory& run);
  // False: list again. Throws RefusedError if the run has held something.
  bool is_fresh(Directory& run, Directory* attempts, const std::vector<Skipped>& skipped) const;

  const StoreOptions& options_;
  Verifier& verifier_;
  std::map<std::string, Finding> believed_damaged_;
  // A bad sector may cost minutes a look. After three failed looks, each later select() looks only once.
  std::map<std::string, Finding> found_unreadable_;
  std::vector<FileId> damaged_;
};

}}  // namespace holdfast::v0_2
