// The one thread that writes to the run directory: it commits staged snapshots through the store, and then
// does retention, run state and ledger.
//
// One write is in flight, and one more request may wait. A newer request replaces the waiting one, whose
// handle becomes `overtaken`; nothing is lost. A failed write leaves its error in the handle, and in
// failure() until the next acknowledgement; it never ends the thread. Once a newer attempt exists the writer
// is *superseded* for good: every waiting and later request fails, and it touches nothing more.
//
// Errors: the constructor throws Error if no thread can be made. submit() throws std::bad_alloc, and then
// took nothing. Nothing else throws, even without memory.
// Threads: submit and queries from any thread; construct and destroy on one.
// Durability: a handle becomes durable only after CheckpointStore::commit has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/base/thread/thread_role.h"
#include "holdfast/ledger/ledger.h"
#include "holdfast/ledger/loss_ring.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/writing/failure_streak.h"
#include "holdfast/writing/save_handle.h"
#include "holdfast/writing/write_request.h"

namespace holdfast { inline namespace v0_2 {

namespace internal {
class FileCommit;
}

class AsyncWriter {
 public:
  // Requires a store that has claimed and recovered. The writer owns it until stop() or the destructor
  // returns. `run`: attempt, host and so on, for the run states written after each acknowledgement.
  AsyncWriter(CheckpointStore& store, Clock& clock, LossRing& losses, RunState run,
              AsyncWriterOptions options = {});
  ~AsyncWriter();  // calls stop()
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // Never waits for the disk.
  SaveHandle submit(WriteRequest request);
  // Age of the write in flight; nullopt if there is none.
  std::optional<Duration> writing_for() const noexcept;
  // Waits at most `limit` until nothing is in flight or waiting. Returns whether that is so.
  bool wait_idle(std::chrono::nanoseconds limit) const;
  // The process is about to end: this thread leaves the deletions to whoever tells the end.
  void leave_soon() noexcept { leaving_.store(true, std::memory_order_relaxed); }
  // A deadline waits for the write in flight or for later ones: no speed limit meanwhile.
  void lift_limit() noexcept { limit_lifted_.store(true, std::memory_order_relaxed); }
  void restore_limit() noexcept { limit_lifted_.store(false, std::memory_order_relaxed); }
  // Waits for the write in flight, drops the waiting one (its handle fails), flushes the ledger, and ends the
  // thread. Idempotent. Afterwards the store belongs to the caller again.
  void stop();
  // Stops, but waits at most `limit`. False: the thread is still busy, or hangs in the disk. Call it
  // again, or leave the thread behind.
  bool stop_within(std::chrono::nanoseconds limit);

  // Odd while there is something to write or to tidy up. Changes at every transition.
  std::uint64_t activity() const { return activity_.load(std::memory_order_relaxed); }
  bool failing() const { return failing_.load(std::memory_order_relaxed); }
  // A save has failed because of another rank (OtherRankError in joint_save.h).
  bool others_failed() const { return others_failed_.load(std::memory_order_relaxed); }
  // Number of saves that failed because of other ranks, including those where a rank could not take part. Two
  // of these in a row count as a failure of that rank.
  std::uint64_t saves_failed_by_other_ranks() const {
    return failed_by_other_ranks_.load(std::memory_order_relaxed);
  }
  bool superseded() const { return superseded_.load(std::memory_order_acquire); }
  std::optional<std::string> failure() const noexcept;  // of the last write, until a save is acknowledged
  // The failures since the last save that succeeded; nullopt: it was the last one.
  std::optional<FailureStreak::State> failures() const noexcept;
  // Counts a save that failed before submit() like any other failure.
  void note_failure(const std::string& text, FailureKind kind = FailureKind::may_pass) noexcept;
  std::string superseded_reason() const noexcept;

  struct Acknowledged {
    std::int64_t step = -1;
    std::string checkpoint;
    SteadyTime when{};
  };
  Acknowledged last_acknowledged() const;
  std::int64_t last_step() const noexcept;  // of last_acknowledged()

 private:
  struct Job {
    WriteRequest request;
    std::shared_ptr<SaveHandle::Shared> handle;
  };

  void run() noexcept;
  void ask_to_stop();
  void write(Job job) noexcept HOLDFAST_REQUIRES(thread_role_) HOLDFAST_EXCLUDES(mutex_);
  void tell_end(const SaveHandle::Shared& save, SaveListener::Outcome outcome) const noexcept;
  void not_begun(Job& job, std::string_view reason) const noexcept;
  void failed_by_other_rank(const OtherRankError& error, Job& job) noexcept HOLDFAST_REQUIRES(thread_role_);
  void acknowledged(Job& job, const CheckpointInfo& checkpoint) noexcept HOLDFAST_REQUIRES(thread_role_);
  void failed(Job& job, const char* error, bool may_pass) noexcept HOLDFAST_REQUIRES(thread_role_);
  // True: a request that waited is dropped.
  bool supersede(const char* reason) noexcept HOLDFAST_REQUIRES(thread_role_) HOLDFAST_EXCLUDES(mutex_);
  void keep_house(const CheckpointInfo& checkpoint, const SaveHandle::Shared& save) noexcept
      HOLDFAST_REQUIRES(thread_role_);
  std::string commit_members(const SaveHandle::Shared& save) const HOLDFAST_REQUIRES(thread_role_);
  void note_activity() noexcept HOLDFAST_REQUIRES(mutex_);
  void look_around() noexcept HOLDFAST_REQUIRES(thread_role_) HOLDFAST_EXCLUDES(mutex_);
  void flush_ledger() noexcept HOLDFAST_REQUIRES(thread_role_) HOLDFAST_EXCLUDES(mutex_);

  CheckpointStore& store_;
  Clock& clock_;
  LossRing& losses_;
  const RunState run_;
  const AsyncWriterOptions options_;
  static constexpr std::size_t kMostCommits = 1000;
  std::deque<std::string> commits_;  // lines for the ledger; the writer's thread

  std::atomic<bool> failing_{false};
  std::atomic<bool> others_failed_{false};
  std::atomic<std::uint64_t> failed_by_other_ranks_{0};
  std::atomic<bool> superseded_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> limit_lifted_{false};
  std::atomic<std::uint64_t> activity_{0};

  mutable Mutex mutex_;
  CondVar wake_;
  mutable CondVar idle_;
  std::optional<Job> waiting_ HOLDFAST_GUARDED_BY(mutex_);
  bool writing_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::optional<SteadyTime> writing_since_ HOLDFAST_GUARDED_BY(mutex_);
  bool stopping_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool over_ HOLDFAST_GUARDED_BY(mutex_) = false;  // the thread does nothing more
  FailureStreak failures_ HOLDFAST_GUARDED_BY(mutex_);
  std::string superseded_reason_ HOLDFAST_GUARDED_BY(mutex_);
  Acknowledged last_ HOLDFAST_GUARDED_BY(mutex_);

  ThreadRole thread_role_;
  SteadyTime last_look_ HOLDFAST_GUARDED_BY(thread_role_);  // used by the writer's thread alone
  const std::unique_ptr<internal::FileCommit> files_ HOLDFAST_PT_GUARDED_BY(thread_role_);
  bool refused_ HOLDFAST_GUARDED_BY(thread_role_) =
      false;  // the last save failed because a rank took no part; likewise
  const OwnerProcess process_;
  std::thread thread_;  // last member: all others exist when it starts
};

}}  // namespace holdfast::v0_2
