// Finds the checkpoint to start from, by content alone. Names only give the order to look in: newest first by
// (attempt, step). Neither times nor links, nor what run states say, have a part in it.
//
// - Damage is believed after a first look and two more that read the device; until then, a good look wins.
// What
//   was believed is remembered: a committed file never changes.
// - A file whose content is another step or attempt than its name says is stepped past, and never moved or
//   deleted: its bytes are whole, whatever happened to its name.
// - What the system refuses (EIO, ESTALE, EACCES, ENOMEM …) says nothing about the file: an IoError, and
//   nothing is stepped past.
//
// Changes nothing on the disk. Errors: RefusedError: a newer format above the newest good one; checkpoints
// are held and none verifies (unless allow_fresh); the chosen starting point is missing or not good. IoError.
// Threads: one at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

// A regular file or something else under a checkpoint's name.
struct Candidate {
  FileId id;
  std::string name;
  FileKind kind = FileKind::regular;
};

// Everything named like a checkpoint, newest first.
std::vector<Candidate> candidates_in(const Directory& run);

class Recovery {
 public:
  // `options` and `verifier` outlive this object.
  Recovery(const StoreOptions& options, Verifier& verifier) : options_(options), verifier_(verifier) {}

  // `attempts` may be nullptr.
  Selection select(Directory& run, Directory* attempts);
  // What the last select() stepped past as damaged, newest first. Empty after a fresh start: where nothing
  // verifies, the fault may not be the files'.
  const std::vector<FileId>& damaged() const { return damaged_; }

 private:
  enum class Outcome { good, damaged, misnamed, newer_format, vanished };
  struct Look {
    Outcome outcome = Outcome::vanished;
    Verdict verdict;
    std::uint64_t bytes = 0;
  };

  Look look(Directory& run, const std::string& name, std::optional<FileId> id);
  Look look_once(Directory& run, const std::string& name, bool uncached);
  // nullopt: a file vanished while it was looked at, so the list is stale.
  std::optional<Selection> newest_good(Directory& run, Directory* attempts);
  Selection chosen(Directory& run);
  void refuse_unless_fresh(Directory& run, Directory* attempts, const std::vector<Skipped>& skipped) const;

  const StoreOptions& options_;
  Verifier& verifier_;
  std::map<std::string, Look> believed_damaged_;
  std::vector<FileId> damaged_;
};

}  // namespace holdfast::inline v1
