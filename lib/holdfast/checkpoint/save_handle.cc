#include "holdfast/checkpoint/save_handle.h"

#include <new>

#include "holdfast/base/error.h"
#include "holdfast/checkpoint/internal/save_handle_shared.h"

namespace holdfast::inline v1 {

void SaveHandle::Shared::settle(SaveStatus outcome, std::string_view outcome_text) noexcept {
  {
    const std::lock_guard lock(mutex);
    if (status != SaveStatus::staged) return;
    status = outcome;
    try {
      text.assign(outcome_text);
    } catch (const std::bad_alloc&) {
      text.assign(kOutOfMemory);
    }
  }
  settled.notify_all();
}

std::int64_t SaveHandle::step() const { return shared_ ? shared_->step : -1; }

SaveStatus SaveHandle::status() const {
  if (!shared_) return SaveStatus::failed;
  const std::lock_guard lock(shared_->mutex);
  return shared_->status;
}

SaveStatus SaveHandle::wait() const {
  if (!shared_) return SaveStatus::failed;
  std::unique_lock lock(shared_->mutex);
  shared_->settled.wait(lock, [&] { return shared_->status != SaveStatus::staged; });
  return shared_->status;
}

std::optional<SaveStatus> SaveHandle::wait_for(std::chrono::nanoseconds limit) const {
  if (!shared_) return SaveStatus::failed;
  std::unique_lock lock(shared_->mutex);
  if (!shared_->settled.wait_for(lock, limit, [&] { return shared_->status != SaveStatus::staged; })) {
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

}  // namespace holdfast::inline v1
