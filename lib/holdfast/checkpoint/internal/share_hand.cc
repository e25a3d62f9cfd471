#include "holdfast/checkpoint/internal/share_hand.h"

#include <exception>
#include <system_error>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/checkpoint/internal/crew.h"

namespace holdfast::inline v1::internal {

ShareHand::ShareHand(SharedWriter& together, Companions& companions, FileSystem& files,
                     std::filesystem::path run, const Clock& clock)
    : together_(together), companions_(companions), files_(files), run_(std::move(run)), clock_(clock) {
  try {
    thread_ = std::thread([this] { this->run(); });
  } catch (const std::system_error& error) {
    throw Error(std::string("cannot start the thread that writes this rank's share of checkpoints: ") +
                    error.what() + "; raise the limit of processes (ulimit -u) or of memory (ulimit -v)",
                ExitCode::io_failed);
  }
}

ShareHand::~ShareHand() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ShareHand::hand(HandedShare share) {
  {
    const std::lock_guard lock(mutex_);
    const auto handle = share.handle;
    waiting_.push_back(std::move(share));
    handle->in_hand = true;
  }
  wake_.notify_one();
}

bool ShareHand::busy() const {
  const std::lock_guard lock(mutex_);
  return working_ || !waiting_.empty();
}

bool ShareHand::wait_idle(std::chrono::nanoseconds limit) const {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, limit, [&] { return !working_ && waiting_.empty(); });
}

void ShareHand::run() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    HandedShare share = std::move(waiting_.front());
    waiting_.pop_front();
    working_ = true;
    const auto handle = share.handle;
    lock.unlock();
    take_part(std::move(share));
    handle->in_hand = false;
    lock.lock();
    working_ = false;
    if (waiting_.empty()) idle_.notify_all();
  }
}

// What rank 0 has not said is left open: the votes tell of it (Agreed::durable).
void ShareHand::take_part(HandedShare share) noexcept {
  SharedOutcome outcome;
  const SteadyTime began = clock_.now();
  try {
    outcome = share.snapshot ? together_.take_part(files_, run_, share.save, *share.snapshot, share.how)
                             : together_.stand_aside(share.step, share.refusal, share.save.number, share.how);
    if (outcome.kind == SharedOutcome::Kind::alone) tell_own(share);
  } catch (const std::exception& error) {
    outcome.kind = SharedOutcome::Kind::unknown;
    log_warning("this rank's part in the save of step {}: {}", share.step, what_of(error));
  }
  share.snapshot.reset();  // whoever sees how it ended finds the image free
  const Duration took = clock_.now() - began;
  share.handle->update([&](SaveFigures& figures) {
    figures.bytes = outcome.bytes;
    figures.queued = began - share.handle->staged_at;
    figures.write = outcome.write;
    figures.commit = took - outcome.write;
  });
  switch (outcome.kind) {
    case SharedOutcome::Kind::committed:
      return share.handle->settle(SaveStatus::durable, outcome.checkpoint);
    case SharedOutcome::Kind::failed:
    case SharedOutcome::Kind::superseded:
      return share.handle->settle(SaveStatus::failed, outcome.reason);
    case SharedOutcome::Kind::alone:
      return;
    case SharedOutcome::Kind::unknown:
      if (!outcome.reason.empty()) log_warning(outcome.reason);
      return;
  }
}

void ShareHand::tell_own(const HandedShare& share) {
  if (share.own.empty()) return;
  std::string name = own_text(share.step);
  companions_.tell(name, share.own);
  name.swap(told_own_);
  if (!name.empty() && name != told_own_) companions_.forget(name);
}

}  // namespace holdfast::inline v1::internal
