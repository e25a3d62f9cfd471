#include "holdfast/ranks/share_writer_thread.h"

#include <exception>
#include <system_error>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/thread/block_signals.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

ShareWriterThread::ShareWriterThread(SharedWriter& together, RankChannel& channel, FileSystem& files,
                                     std::filesystem::path run, const Clock& clock)
    : together_(together), channel_(channel), files_(files), run_(std::move(run)), clock_(clock) {
  try {
    const BlockSignals block;  // on a FUSE mount a handler would end an fsync with EINTR, a failure
    thread_ = std::thread([this] { this->run(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("cannot start the thread that writes this rank's share of checkpoints: ") +
                    error.what() + "; raise the limit of processes (ulimit -u) or of memory (ulimit -v)",
                ExitCode::io_failed);
  }
}

ShareWriterThread::~ShareWriterThread() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ShareWriterThread::hand(HandedShare share) {
  {
    const MutexLock lock(mutex_);
    const auto handle = share.handle;
    waiting_.push_back(std::move(share));
    // Set under the lock, before the thread can settle the handle.
    handle->taken = true;
  }
  wake_.notify_one();
}

bool ShareWriterThread::busy() const {
  const MutexLock lock(mutex_);
  return working_ || !waiting_.empty();
}

bool ShareWriterThread::wait_idle(std::chrono::nanoseconds limit) const {
  const MutexLock lock(mutex_);
  return idle_.wait_for(mutex_, limit,
                        [&]() HOLDFAST_REQUIRES(mutex_) { return !working_ && waiting_.empty(); });
}

void ShareWriterThread::run() noexcept {
  const InRole role(thread_role_);
  MutexLock lock(mutex_);
  while (true) {
    wake_.wait(mutex_, [&]() HOLDFAST_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
    // Stops only when all shares are written: other ranks count on them.
    if (waiting_.empty()) return;
    HandedShare share = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = true;
    const auto handle = share.handle;
    // Without the lock: a share may take seconds to write, and hand() must not wait for it.
    lock.unlock();
    take_part(std::move(share));
    handle->taken = false;
    lock.lock();
    working_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

// If rank 0 does not tell the outcome, the handle stays open: the votes report it (Agreed::durable).
void ShareWriterThread::take_part(HandedShare share) noexcept {
  SharedOutcome outcome;
  const SteadyTime began = clock_.now();
  try {
    outcome = share.snapshot ? together_.take_part(files_, run_, share.save, *share.snapshot, share.how)
                             : together_.stand_aside(share.step, share.refusal, share.save.number, share.how);
    // Rank 0 writes alone, so it needs the tensors that only this rank has.
    if (outcome.kind == SharedOutcome::Kind::alone) tell_own(share);
  } catch (const std::exception& error) {
    outcome.kind = SharedOutcome::Kind::unknown;
    log_warning("this rank's part in the save of step {}: {}", share.step, what_of(error));
  }
  share.snapshot.reset();  // before the outcome is visible, so that its waiters find the image free
  const Duration took = clock_.now() - began;
  // Figures before the outcome: the thread that waits for the outcome reads them next.
  share.handle->written(began, outcome.bytes, outcome.write, took - outcome.write);
  if (share.ended) share.ended(outcome.kind);
  switch (outcome.kind) {
    case SharedOutcome::Kind::committed:
      return share.handle->settle(SaveStatus::durable, outcome.checkpoint);
    case SharedOutcome::Kind::failed:
    case SharedOutcome::Kind::superseded:
      return share.handle->settle(SaveStatus::failed, outcome.reason);
    case SharedOutcome::Kind::alone:
      // The handle stays open: the votes tell how rank 0's own save ends.
      return;
    case SharedOutcome::Kind::unknown:
      if (!outcome.reason.empty()) log_warning(outcome.reason);
      return;
  }
}

void ShareWriterThread::tell_own(const HandedShare& share) {
  if (share.own.empty()) return;
  std::string name = own_text(share.step);
  channel_.tell(name, share.own);
  name.swap(told_own_);
  // The text of the last save is of no use any more, and the store keeps texts in memory.
  if (!name.empty() && name != told_own_) channel_.forget(name);
}

}}}  // namespace holdfast::v0_2::internal
