#include "holdfast/writing/save_handle.h"

#include <algorithm>
#include <new>

#include "holdfast/base/error.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::chrono::nanoseconds kLongestWait = std::chrono::hours(24 * 365);

bool waits_for_itself(const SaveHandle::Shared& save) HOLDFAST_REQUIRES(save.mutex) {
  // A thread that waits for what only it can do waits for ever.
  const auto self = std::this_thread::get_id();
  if (save.settled_by == self) return is_open(save.status);
  return save.status == SaveStatus::staging && save.ended_by == self;
}

}  // namespace

void SaveHandle::Shared::staged(SteadyTime now) noexcept {
  SaveFigures known;
  {
    const MutexLock lock(mutex);
    // The outcome that another thread is about to settle must stay the last word.
    if (status != SaveStatus::staging || settling) return;
    status = SaveStatus::staged;
    staged_at = now;
    figures.staging = now - boundary;
    known = figures;
  }
  moved.notify_all();
  // Outside the lock, because on_save may ask this handle.
  if (keeper) keeper->tell({.status = SaveStatus::staged, .step = step, .figures = known});
}

void SaveHandle::Shared::written(SteadyTime began, std::uint64_t bytes, Duration write,
                                 Duration commit) noexcept {
  const MutexLock lock(mutex);
  figures.bytes = bytes;
  figures.queued = began - staged_at;
  figures.write = write;
  figures.commit = commit;
}

void SaveHandle::Shared::settle(SaveStatus outcome, std::string_view outcome_text) noexcept {
  SaveFigures known;
  {
    const MutexLock lock(mutex);
    if (!is_open(status) || settling) return;
    // Reserves the outcome while the keeper runs without the lock.
    settling = true;
    known = figures;
  }
  if (keeper) {
    keeper->ending(step, boundary, outcome, known);
    // Told before the waiters wake up and begin the next save.
    keeper->tell({.status = outcome,
                  .step = step,
                  .checkpoint = outcome == SaveStatus::durable ? outcome_text : std::string_view(),
                  .error = outcome == SaveStatus::failed ? outcome_text : std::string_view(),
                  .figures = known});
  }
  {
    const MutexLock lock(mutex);
    status = outcome;
    in_flight.reset();
    // The keeper has added the figures of the risk.
    figures = known;
    try {
      text.assign(outcome_text);
    } catch (const std::bad_alloc&) {
      text.assign(kOutOfMemory);
    }
  }
  moved.notify_all();
}

std::int64_t SaveHandle::step() const { return shared_ ? shared_->step : -1; }

SaveStatus SaveHandle::status() const {
  if (!shared_) return SaveStatus::failed;
  const MutexLock lock(shared_->mutex);
  return shared_->status;
}

SaveStatus SaveHandle::wait_staged() const {
  if (!shared_) return SaveStatus::failed;
  const MutexLock lock(shared_->mutex);
  shared_->moved.wait(shared_->mutex, [&]() HOLDFAST_REQUIRES(shared_->mutex) {
    return shared_->status != SaveStatus::staging || waits_for_itself(*shared_);
  });
  return shared_->status;
}

SaveStatus SaveHandle::wait() const {
  if (!shared_) return SaveStatus::failed;
  const MutexLock lock(shared_->mutex);
  shared_->moved.wait(shared_->mutex, [&]() HOLDFAST_REQUIRES(shared_->mutex) {
    return !is_open(shared_->status) || waits_for_itself(*shared_);
  });
  return shared_->status;
}

std::optional<SaveStatus> SaveHandle::wait_for(std::chrono::nanoseconds limit) const {
  if (!shared_) return SaveStatus::failed;
  const MutexLock lock(shared_->mutex);
  if (!shared_->moved.wait_for(shared_->mutex, std::min<std::chrono::nanoseconds>(limit, kLongestWait),
                               [&]() HOLDFAST_REQUIRES(shared_->mutex) {
                                 return !is_open(shared_->status) || waits_for_itself(*shared_);
                               })) {
    return std::nullopt;
  }
  return shared_->status;
}

HomeStatus SaveHandle::wait_home(std::chrono::nanoseconds limit) const {
  // A clock cannot add "for ever" to its time.
  limit = std::clamp<std::chrono::nanoseconds>(limit, std::chrono::nanoseconds::zero(), kLongestWait);
  const auto began = std::chrono::steady_clock::now();
  const auto settled = wait_for(limit);
  if (!settled || is_open(*settled) || *settled == SaveStatus::failed) return HomeStatus::away;
  if (!shared_->keeper) return HomeStatus::no_mirror;
  return shared_->keeper->wait_home(shared_->step, limit - (std::chrono::steady_clock::now() - began));
}

std::string SaveHandle::error() const {
  if (!shared_) return "no save";
  const MutexLock lock(shared_->mutex);
  return shared_->status == SaveStatus::failed ? shared_->text : std::string();
}

std::string SaveHandle::checkpoint() const {
  if (!shared_) return {};
  const MutexLock lock(shared_->mutex);
  return shared_->status == SaveStatus::durable ? shared_->text : std::string();
}

SaveFigures SaveHandle::figures() const { return shared_ ? shared_->known() : SaveFigures(); }

}}  // namespace holdfast::v0_2
