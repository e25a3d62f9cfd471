#include "holdfast/checkpoint/save_handle.h"

#include <new>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1 {
namespace {

bool waits_for_itself(const SaveHandle::Shared& save) {
  const auto self = std::this_thread::get_id();
  if (save.settled_by == self) return is_open(save.status);
  return save.status == SaveStatus::staging && save.ended_by == self;
}

}  // namespace

void SaveHandle::Shared::staged(SteadyTime now) noexcept {
  SaveFigures known;
  {
    const std::lock_guard lock(mutex);
    if (status != SaveStatus::staging || settling) return;
    status = SaveStatus::staged;
    staged_at = now;
    figures.staging = now - boundary;
    known = figures;
  }
  moved.notify_all();
  if (keeper) keeper->tell({.status = SaveStatus::staged, .step = step, .figures = known});
}

void SaveHandle::Shared::settle(SaveStatus outcome, std::string_view outcome_text) noexcept {
  SaveFigures known;
  {
    const std::lock_guard lock(mutex);
    if (!is_open(status) || settling) return;
    settling = true;
    known = figures;
  }
  if (keeper) {
    keeper->ending(step, boundary, outcome, known);
    // Before whoever waits goes on and begins the next one.
    keeper->tell({.status = outcome,
                  .step = step,
                  .checkpoint = outcome == SaveStatus::durable ? outcome_text : std::string_view(),
                  .error = outcome == SaveStatus::failed ? outcome_text : std::string_view(),
                  .figures = known});
  }
  {
    const std::lock_guard lock(mutex);
    status = outcome;
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
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

SaveStatus SaveHandle::wait_staged() const {
  if (!shared_) return SaveStatus::failed;
  std::unique_lock lock(shared_->mutex);
  shared_->moved.wait(lock,
                      [&] { return shared_->status != SaveStatus::staging || waits_for_itself(*shared_); });
  return shared_->status;
}

SaveStatus SaveHandle::wait() const {
  if (!shared_) return SaveStatus::failed;
  std::unique_lock lock(shared_->mutex);
  shared_->moved.wait(lock, [&] { return !is_open(shared_->status) || waits_for_itself(*shared_); });
  return shared_->status;
}

std::optional<SaveStatus> SaveHandle::wait_for(std::chrono::nanoseconds limit) const {
  if (!shared_) return SaveStatus::failed;
  std::unique_lock lock(shared_->mutex);
  if (!shared_->moved.wait_for(lock, limit,
                               [&] { return !is_open(shared_->status) || waits_for_itself(*shared_); })) {
    return std::nullopt;
  }
  return shared_->status;
}

std::string SaveHandle::error() const {
  if (!shared_) return "no save";
  const std::lock_guard lock(shared_->mutex);
  return shared_->status == SaveStatus::failed ? shared_->text : std::string();
}

std::string SaveHandle::checkpoint() const {
  if (!shared_) return {};
  const std::lock_guard lock(shared_->mutex);
  return shared_->status == SaveStatus::durable ? shared_->text : std::string();
}

SaveFigures SaveHandle::figures() const { return shared_ ? shared_->known() : SaveFigures(); }

}  // namespace holdfast::inline v1
