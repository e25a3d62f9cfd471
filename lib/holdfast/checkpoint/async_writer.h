// The one thread that writes to the run directory: takes staged snapshots, commits them through the store,
// and keeps the directory afterwards (retention, run state, ledger).
//
// One write is in flight; one more request may wait, and a newer one takes its place: the overtaken handle is
// `overtaken`, nothing is lost. A failed write leaves its error in the handle and in failure() until the next
// acknowledgement; it never ends the thread. As soon as a newer attempt is seen the writer is *superseded*
// for good: every waiting and later request fails, and nothing is touched any more.
//
// Errors: the constructor throws Error when the system refuses a thread; submit throws std::bad_alloc, and
// then took nothing. Nothing else throws, also when there is no memory.
// Threads: submit and every query from any thread; construct and destroy on one.
// Durability: a handle turns durable after CheckpointStore::commit has returned, not before.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/cost_model.h"
#include "holdfast/checkpoint/ledger.h"
#include "holdfast/checkpoint/loss_ring.h"
#include "holdfast/checkpoint/save_handle.h"
#include "holdfast/checkpoint/shared_write.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast::inline v1 {

// What the other ranks of a run have to do with a save of rank 0's.
struct WithOthers {
  std::uint64_t number = 0;                   // SharedSave::number
  std::shared_ptr<const Shares> shares = {};  // null: they are told that rank 0 writes it alone
  SharedWriteOptions limits = {};             // begin_within and so on
};

struct WriteRequest {
  // With a run record (run_record.h) among its attributes. The writer decides run.finite: what the record
  // says, and no NaN or infinity in any tensor.
  std::shared_ptr<const Snapshot> snapshot;
  std::shared_ptr<const FilePlan> plan;
  Ancestry ancestry;
  // What copying it took: a part of what a commit costs.
  Duration copied{};
  // Called on the writer's thread before anything is written: brings what the image still lacks (what is
  // other ranks' own). What it throws fails the save.
  std::function<void()> complete = {};
  // The others expect this save; whatever becomes of the request, they are told. Requires options.together.
  std::optional<WithOthers> others = {};
  // Made by whoever began the save; null: submit() makes one.
  std::shared_ptr<SaveHandle::Shared> save = nullptr;
};

struct AsyncWriterOptions {
  int threads = 2;                                     // hashing and writing side by side
  double write_limit = 0;                              // MB/s; 0: none
  Duration ledger_interval = std::chrono::seconds(1);  // while idle; a write in flight delays it
  Duration claim_interval = std::chrono::seconds(5);   // how soon a newer attempt is noticed while idle
  // Told what each write took that no limit slowed down; outlives the writer.
  CostModel* costs = nullptr;
  Ledger* ledger = nullptr;          // drained beside the losses; outlives the writer
  SharedWriter* together = nullptr;  // with other ranks; outlives the writer
};

class AsyncWriter {
 public:
  // Requires a store that has claimed and recovered; it belongs to the writer until stop() or the destructor.
  // `run`: attempt, host and the like for the run states written after each acknowledgement.
  AsyncWriter(CheckpointStore& store, Clock& clock, LossRing& losses, RunState run,
              AsyncWriterOptions options = {});
  ~AsyncWriter();  // as stop()
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // Never waits for the disk.
  SaveHandle submit(WriteRequest request);
  // Gives up the request that waits, for the sake of a newer one to come: it is `overtaken`, and its image
  // free. One that somebody asked for stays, unless `any`. False when nothing was given up.
  bool recall(bool any) noexcept;
  // Learns what a write costs before there was one: writes a file of so many bytes that becomes nothing, as
  // soon as nothing else is to be done, and tells `costs`. A save that comes meanwhile ends it; it takes
  // about two seconds at most. Requires `costs`.
  void probe(std::uint64_t bytes, std::uint64_t state_bytes) noexcept;
  bool probing() const noexcept { return probing_.load(std::memory_order_acquire); }
  // For how long the write in flight has been under way; nullopt without one.
  std::optional<Duration> writing_for() const noexcept;
  // Nothing in flight and nothing waiting, after at most `limit`.
  bool wait_idle(std::chrono::nanoseconds limit) const;
  // The process is about to end: deletions are left to the next attempt.
  void leave_soon() noexcept { leaving_.store(true, std::memory_order_relaxed); }
  // Somebody waits for the write in flight, or for those to come, against time: no limit meanwhile.
  void hurry(bool so = true) noexcept { hurry_.store(so, std::memory_order_relaxed); }
  // Waits for the write in flight, drops the waiting one (its handle fails), flushes the ledger, ends the
  // thread. Idempotent. Afterwards the store belongs to the caller again.
  void stop();

  // Odd while there is something to write or to tidy up after a write; another number every time.
  std::uint64_t activity() const { return activity_.load(std::memory_order_relaxed); }
  bool failing() const { return failing_.load(std::memory_order_relaxed); }
  // A save has failed because of another rank (shared_write.h, RankError).
  bool others_failed() const { return others_failed_.load(std::memory_order_relaxed); }
  // Saves that failed because of others, also where one merely could not take part. The same again right
  // after that is a rank that fails.
  std::uint64_t spoiled() const { return spoiled_.load(std::memory_order_relaxed); }
  bool superseded() const { return superseded_.load(std::memory_order_acquire); }
  std::optional<std::string> failure() const noexcept;  // of the last write, until one is acknowledged
  // A save that failed before it could be submitted counts as any other.
  void note_failure(const std::string& text) noexcept;
  std::string superseded_reason() const noexcept;

  struct Acknowledged {
    std::int64_t step = -1;
    std::string checkpoint;
    SteadyTime when{};
  };
  Acknowledged last_acknowledged() const;
  std::int64_t last_step() const noexcept;  // of it

 private:
  struct Job {
    WriteRequest request;
    std::shared_ptr<SaveHandle::Shared> handle;
  };

  void run() noexcept;
  void write(Job job) noexcept;
  void try_out() noexcept;
  bool idle_while_probing() const noexcept;
  Snapshot seal(const WriteRequest& request);
  CheckpointInfo commit(const Job& job);
  CheckpointInfo write_file(const WriteRequest& request, Snapshot& sealed, Duration& wrote);
  void not_begun(Job& job, std::string_view reason) const noexcept;
  void spoiled_by(const RankError& error, Job& job) noexcept;
  void acknowledged(Job& job, const CheckpointInfo& checkpoint) noexcept;
  void failed(Job& job, const char* error) noexcept;
  void supersede(const char* reason) noexcept;
  void keep_house(const CheckpointInfo& checkpoint, const SaveHandle::Shared& save) noexcept;
  std::string commit_members(const SaveHandle::Shared& save) const;
  void note_activity() noexcept;
  void look_around() noexcept;
  void flush_ledger() noexcept;

  CheckpointStore& store_;
  Clock& clock_;
  LossRing& losses_;
  const RunState run_;
  const AsyncWriterOptions options_;

  std::atomic<bool> failing_{false};
  std::atomic<bool> others_failed_{false};
  std::atomic<std::uint64_t> spoiled_{0};
  std::atomic<bool> superseded_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> hurry_{false};
  std::atomic<bool> probing_{false};
  std::atomic<std::uint64_t> activity_{0};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  mutable std::condition_variable idle_;
  std::optional<Job> waiting_;
  bool writing_ = false;
  std::optional<SteadyTime> writing_since_;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> probe_;  // bytes, of the state
  bool stopping_ = false;
  std::optional<std::string> failure_;
  std::string superseded_reason_;
  Acknowledged last_;

  SteadyTime last_look_;  // the writer's thread only
  bool refused_ = false;  // this too: the last save failed because a rank took no part in it
  std::thread thread_;    // last: everything above exists when it starts
};

}  // namespace holdfast::inline v1
