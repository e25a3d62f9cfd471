// All ranks write one checkpoint file together: each writes its share (format/shares.h) into the temporary
// file that rank 0's store made. Rank 0 writes the rest, the head last, and commits by the store's rules. A
// checkpoint is whole or does not exist, and no late writer reaches one.
//
// docs/several_gpus.md#how-the-ranks-write-one-file has the messages, the proof, and what it assumes.
// Requires that all ranks make the same calls for the same saves in the same order: commit() on rank 0,
// take_part() on the others; and that a save begins only after all have returned from the one before. The
// ballots ensure that.
//
// Errors: rank 0: exceptions of the store, and RankError, which names a rank; others: a value. All waits are
// limited. Threads: commit(), take_part() and stand_aside() one at a time on each rank, the writer's;
// decline() and alone() any. Durability: as the store's commit.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/format/shares.h"
#include "holdfast/io/file_system.h"
#include "holdfast/ranks/patience.h"
#include "holdfast/ranks/rank_channel.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/joint_save.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
struct SaveTag;
}

// Identical on all ranks.
struct SharedSave {
  std::shared_ptr<const FilePlan> plan;
  std::shared_ptr<const Shares> shares;  // of this plan
  // Number of this save in the attempt: unique, and growing. 0: the next.
  std::uint64_t number = 0;
};

class RankError : public OtherRankError {
 public:
  RankError(int rank, const std::string& reason, bool refused = false)
      : OtherRankError("rank " + std::to_string(rank) + ' ' + reason, refused), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

struct SharedWriteOptions {
  ImageWriterOptions how = {};  // rank 0 alone uses before_seal, with the numbers of all ranks
  bool check_finite = true;     // look for numbers that are not finite; costs a tenth of the hashing
  // Timeouts; shorten them when an end is announced. The first: until rank 0's file exists, whose space may
  // be slow to reserve.
  Duration begin_within = std::chrono::minutes(2);
  // From the end of rank 0's own share until all reports have arrived: the slowest rank's disk decides.
  Duration reports_within = std::chrono::minutes(10);
  // Additional time for rank 0 to finish: late blocks, fsync, commit.
  Duration end_within = std::chrono::minutes(2);
  const Patience* patience = nullptr;  // nullptr: only the timeouts
};

struct SharedCommit {
  CheckpointInfo checkpoint;
  std::vector<Digest> digests;  // of the tensors in layout order; empty if the step was committed before
  Duration write{};             // until the head was written
};

// How a save ended, for ranks other than 0.
struct SharedOutcome {
  enum class Kind {
    committed,
    failed,      // on all ranks; nothing was acknowledged
    superseded,  // a newer attempt owns the directory
    alone,       // rank 0 writes it alone
    unknown,     // rank 0 fell silent: the checkpoint may exist; the next start finds out
  };
  Kind kind = Kind::unknown;
  std::string checkpoint;   // its name in the run directory
  std::uint64_t bytes = 0;  // of the file
  std::string reason;       // unless committed
  Duration write{};         // duration of this rank's share
};

class SharedWriter {
 public:
  // `attempt` is rank 0's, on all ranks. Both references outlive this object.
  SharedWriter(RankChannel& channel, AttemptNumber attempt, Clock& clock = Clock::real())
      : channel_(channel), attempt_(attempt), clock_(clock) {}

  // Rank 0. `snapshot` holds its share of the state and the checkpoint's attributes; the function puts what
  // the others send into its image.
  SharedCommit commit(CheckpointStore& store, const SharedSave& save, Snapshot& snapshot, Ancestry ancestry,
                      const SharedWriteOptions& options = {});
  // Every other rank. `run`: its path of the run directory. Throws only std::bad_alloc.
  SharedOutcome take_part(FileSystem& files, const std::filesystem::path& run, const SharedSave& save,
                          const Snapshot& snapshot, const SharedWriteOptions& options = {});
  // Instead of either: this rank cannot save, so the save fails on all ranks. On rank 0 all learn it at once;
  // on other ranks this does not wait for the end.
  void decline(std::int64_t step, const std::string& reason, std::uint64_t number = 0) noexcept;
  // Rank 0, instead of commit(): it writes the file alone. Exceptions of RankChannel pass through.
  void alone(std::int64_t step, std::uint64_t number);
  // Rank 0, instead of commit(): nothing is written; the votes tell the others what is durable.
  void leave_out(std::int64_t step, std::uint64_t number) noexcept;
  // Other ranks, instead of take_part(): this rank cannot write, but rank 0 may not need it. Throws only
  // std::bad_alloc.
  SharedOutcome stand_aside(std::int64_t step, const std::string& reason, std::uint64_t number,
                            const SharedWriteOptions& options = {});

  std::uint64_t newest_save() const {  // its number
    const MutexLock lock(mutex_);
    return begun_.back();
  }

 private:
  class Leader;
  struct Told {
    std::uint64_t number = 0;
    SteadyTime at{};
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

  RankChannel& channel_;
  const AttemptNumber attempt_;
  Clock& clock_;
  mutable Mutex mutex_;
  std::array<std::uint64_t, 3> begun_ HOLDFAST_GUARDED_BY(mutex_){};  // the newest saves, in their order
  std::vector<Told> told_ HOLDFAST_GUARDED_BY(mutex_);                // texts that are not released yet
};

// Rank 0's role in one save, for its writer.
class LedSave final : public JointSave {
 public:
  // Without shares rank 0 writes alone. `writer` outlives this object; the writer supplies `limits.how`.
  LedSave(SharedWriter& writer, std::int64_t step, SharedSave save, SharedWriteOptions limits)
      : writer_(writer), step_(step), save_(std::move(save)), limits_(std::move(limits)) {}

  int writers() const override { return save_.shares ? save_.shares->world_size() : 1; }
  CheckpointInfo commit(CheckpointStore& store, Snapshot& snapshot, Ancestry ancestry, ImageWriterOptions how,
                        Duration& wrote) override;
  void begin_alone() override { writer_.alone(step_, save_.number); }
  void log_alone_from_here(const OtherRankError& why) const noexcept override;
  void decline(const std::string& reason) noexcept override { writer_.decline(step_, reason, save_.number); }

 private:
  SharedWriter& writer_;
  const std::int64_t step_;
  const SharedSave save_;
  const SharedWriteOptions limits_;
};

}}  // namespace holdfast::v0_2
