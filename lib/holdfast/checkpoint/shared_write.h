// One checkpoint file, written by all ranks: each writes its share (format/shares.h) into the temporary file
// that rank 0's store made, rank 0 writes what is left, the head last, and commits by the store's rules.
//
//   rank 0                                          every other rank
//   store makes the temporary file, reserves it
//   tell "begin": its name, the fingerprint ──────► opens it by that name (never creates)
//   writes its own share                            writes its share, fsyncs, closes, and then
//   hear every report ◄──────────────────────────── tell "report": digests, and what it sends; or why not
//   late blocks, then the head
//   fsync, close, read back, rename, acknowledge
//   tell "end": committed as NAME, or why not ────► hear "end"
//
// So three messages a checkpoint and rank, one of them its own; digests travel as 32 letters for 8 MiB.
//
// A checkpoint is whole or it is not there. The head holds the digest of every piece, and rank 0 gets a
// rank's digests from that rank's report alone; the rename comes after all reports. A rank that fails, dies,
// answers late or with anything but the report of this very save fails the save on all ranks, with its number
// and its reason; the temporary file is removed, and the older checkpoints stand.
//
// No late writer reaches a checkpoint. A rank may sleep anywhere in here for any time (SIGSTOP, a hanging
// volume) and then write on, into the inode that it opened. That inode is no checkpoint then and never will
// be:
//   1. A rank opens the file of save n by the name that this begin said, which must be a temporary name of
//      this attempt; once at most, because each call uses another n.
//   2. It tells the report of save n after its writing threads have been joined and its descriptor was
//      closed, whether all went well or not; and a good one only after fsync and close returned success.
//   3. The name belongs to one inode for ever: it carries the attempt, which is claimed once, and a serial
//      number of that attempt's store, which only grows.
//   4. Rank 0 renames this inode only with good reports of save n from all ranks (by 2 nobody has a
//      descriptor on it any more, by 1 nobody ever opens it again), and nothing renames it otherwise: a save
//      that fails leaves its file to be unlinked, and the store never uses it for another.
//   Hence at every rename the set of other ranks' descriptors on the inode is empty, and stays so: an opener
//   that comes late finds no such name, or the file of a save that has failed. The same holds for a recycled
//   file (store/commit.h, rule 12), whose inode was a checkpoint before: it was closed by all then, and
//   becomes a temporary file of a new name. It holds for requests that are still on their way to a file
//   server when write() has given up on them (a soft mount): that rank's report is a failure.
// What remains is a rank's own memory: its digests are made of the bytes that it writes.
//
// Requires: all ranks make the same calls, commit() on rank 0 and take_part() on the others, for the same
// saves in the same order, and begin one only when all have returned from the one before (the ballots of
// companions.h say so). A rank that cannot take part (no memory to stage into) says decline() or
// stand_aside() instead. Where rank 0 finds that it has to write the file by itself after all, it says
// alone(): nobody opens anything then. Errors: rank 0: what the store throws, and RankError that names a
// rank; others: a value. Nothing waits longer than the limits say. Threads: commit(), take_part() and
// stand_aside() one at a time on each rank, the writer's; decline(), alone() and Patience any. Durability: as
// the store's commit.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/companions.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/format/shares.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast::inline v1 {

namespace internal {
struct SaveTag;
}

// The same on all ranks.
struct SharedSave {
  std::shared_ptr<const FilePlan> plan;
  std::shared_ptr<const Shares> shares;  // of this plan
  // Of this save among those of the attempt: each has another, and later ones larger ones. 0: the next.
  std::uint64_t number = 0;
};

// What another rank did not do.
class RankError : public Error {
 public:
  RankError(int rank, const std::string& reason, bool refused = false)
      : Error("rank " + std::to_string(rank) + ' ' + reason, ExitCode::io_failed),
        rank_(rank),
        refused_(refused) {}
  int rank() const { return rank_; }
  // It said that it could not take part in this one; nothing went wrong with its disk or with itself.
  bool refused() const { return refused_; }

 private:
  int rank_;
  bool refused_;
};

// Until when a rank waits for others, whatever the limits say: shortened by another thread while it waits,
// when the end of a machine is announced or a rank is lost. Noticed within two seconds. Threads: any.
class Patience {
 public:
  void end_by(SteadyTime end) noexcept { end_ = end.time_since_epoch().count(); }
  void renew() noexcept { end_by(SteadyTime::max()); }
  SteadyTime end() const noexcept { return SteadyTime(SteadyTime::duration(end_.load())); }

 private:
  std::atomic<SteadyTime::rep> end_{SteadyTime::max().time_since_epoch().count()};
};

// Companions::hear(), in slices, so that patience (nullptr: without end) may end meanwhile; the limit counts
// by the messages' clock and by this one. A rank that is known to be lost is not waited for.
std::string hear_patiently(Companions& companions, Clock& clock, int rank, const std::string& name,
                           Duration limit, const Patience* patience);

struct SharedWriteOptions {
  ImageWriterOptions how =
      {};            // before_seal is rank 0's alone, and hears whether all ranks' numbers are finite
  bool look = true;  // for numbers that are not finite: a tenth of the hashing
  // The limits, to be shortened when an end was announced. Until rank 0's file is there to be written into;
  Duration begin_within = std::chrono::minutes(2);
  // until all reports are there, from when rank 0 has written its own share;
  Duration reports_within = std::chrono::minutes(10);
  // and how much longer for what rank 0 does with them.
  Duration end_within = std::chrono::minutes(2);
  const Patience* patience = nullptr;
};

struct SharedCommit {
  CheckpointInfo checkpoint;
  std::vector<Digest> digests;  // of the tensors in layout order; empty when the step was committed before
  Duration write{};             // until the head was written
};

// What a rank other than 0 learns.
struct SharedOutcome {
  enum class Kind {
    committed,
    failed,      // on all ranks; nothing was acknowledged
    superseded,  // a newer attempt owns the directory
    alone,       // rank 0 writes it by itself
    unknown,     // rank 0 fell silent: the checkpoint may be there, the next start finds out
  };
  Kind kind = Kind::unknown;
  std::string checkpoint;   // its name in the run directory
  std::uint64_t bytes = 0;  // of the file
  std::string reason;       // when not committed
  Duration write{};         // what this rank's share took
};

class SharedWriter {
 public:
  // `attempt` is rank 0's, the same on all ranks. Both references outlive this object.
  SharedWriter(Companions& companions, AttemptNumber attempt, Clock& clock = Clock::real())
      : companions_(companions), attempt_(attempt), clock_(clock) {}

  // Rank 0. `snapshot` holds its share of the state, and the attributes of the checkpoint; what others send
  // is put into its image.
  SharedCommit commit(CheckpointStore& store, const SharedSave& save, Snapshot& snapshot, Ancestry ancestry,
                      const SharedWriteOptions& options = {});
  // Every other rank; `run` is the run directory as it sees it. Never throws but std::bad_alloc.
  SharedOutcome take_part(FileSystem& files, const std::filesystem::path& run, const SharedSave& save,
                          const Snapshot& snapshot, const SharedWriteOptions& options = {});
  // In the place of either: this rank cannot, and the save fails on all of them. On rank 0 all learn it at
  // once; elsewhere it returns without waiting for the end.
  void decline(std::int64_t step, const std::string& reason, std::uint64_t number = 0) noexcept;
  // Rank 0, in the place of commit(). Throws what Companions throw.
  void alone(std::int64_t step, std::uint64_t number);
  // Rank 0, in the place of commit(): what is durable tells the others what has become of it.
  void leave_out(std::int64_t step, std::uint64_t number) noexcept;
  // Any other rank, in the place of take_part(): it cannot, but rank 0 may not need it. Never throws but
  // std::bad_alloc.
  SharedOutcome stand_aside(std::int64_t step, const std::string& reason, std::uint64_t number,
                            const SharedWriteOptions& options = {});

  std::uint64_t saves() const {  // begun so far
    const std::lock_guard lock(mutex_);
    return number_;
  }

 private:
  class Leader;
  struct Told {
    std::uint64_t number = 0;
    std::string name;
  };

  std::uint64_t begin_save(std::uint64_t number) noexcept;
  void tell(std::uint64_t number, const char* message, const std::string& text);
  std::string hear(int rank, std::uint64_t number, const char* message, Duration limit,
                   const Patience* patience);
  SharedOutcome after_first(const internal::SaveTag& tag, const SharedWriteOptions& options,
                            const std::function<std::string(const std::string& begin)>& report);
  std::string report(FileSystem& files, const std::filesystem::path& run, const SharedSave& save,
                     const Snapshot& snapshot, const SharedWriteOptions& options,
                     const internal::SaveTag& tag, const std::string& begin, Duration& took);

  Companions& companions_;
  const AttemptNumber attempt_;
  Clock& clock_;
  mutable std::mutex mutex_;
  std::uint64_t number_ = 0;
  std::vector<Told> told_;  // and not forgotten yet
};

}  // namespace holdfast::inline v1
