#include "holdfast/checkpoint/internal/boundary_shelf.h"

#include <exception>
#include <memory>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/writing/save_handle_shared.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void BoundaryShelf::put(const Staged& image, SaveHandle tried, std::string lacks) noexcept {
  const MutexLock lock(mutex_);
  image_ = image;
  lacks_ = std::move(lacks);
  boundary_ = run_.time.boundary();
  tried_ = std::move(tried);
  // A save of an earlier boundary that failed does not delay the first save of this one.
  retry_ = run_.clock.now();
}

bool BoundaryShelf::stands() const {
  const SaveStatus status = tried_.status();
  return is_open(status) || status == SaveStatus::durable;
}

bool BoundaryShelf::commit() noexcept {
  try {
    {
      const MutexLock lock(mutex_);
      // A save in flight reads the image, which complete() would change.
      if (image_ && stands()) return true;
    }
    // Before the lock, which complete() takes itself.
    if (!partners_.complete(*this)) return false;
    MutexLock lock(mutex_);
    // Another evaluation may have begun since; its image lacks the other ranks' own state.
    if (!image_ || !lacks_.empty()) return false;
    if (stands()) return true;
    const SteadyTime now = run_.clock.now();
    if (run_.writer->superseded() || now < retry_ || !run_.commit_fits()) return false;
    retry_ = now + kSaveAgainAfter;
    const auto save = std::make_shared<SaveHandle::Shared>(image_.snapshot->step, SaveStatus::staging,
                                                           boundary_, true, run_.book);
    WriteRequest request{.snapshot = image_.snapshot,
                         .plan = image_.plan,
                         .ancestry = run_.started.record.ancestry,
                         .copied = image_.copied,
                         .usual = partners_.usual(),
                         .save = save};
    tried_ = SaveHandle(save);
    save_ = save;
    // Without the mutex: submit() may call the program's on_save, which may be slow or call back.
    handing_ = std::this_thread::get_id();
    lock.unlock();
    try {
      save->staged(now);
      run_.writer->submit(std::move(request));
    } catch (const std::exception& error) {  // no caller may be waiting for it
      save->settle(SaveStatus::failed, what_of(error));
    }
    lock.lock();
    handing_.reset();
    handed_over_.notify_all();
    return true;
  } catch (const std::exception& error) {  // the training thread holds the image as well
    log_debug("the boundary could not be handed to the writer: {}", what_of(error));
    return false;
  }
}

BegunSave BoundaryShelf::clear() noexcept {
  const MutexLock lock(mutex_);
  // on_save may come here from inside submit(), and must not wait for itself.
  handed_over_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) {
    return !handing_ || *handing_ == std::this_thread::get_id();
  });
  image_ = {};
  lacks_.clear();
  tried_ = {};
  return std::exchange(save_, nullptr);
}

std::optional<std::string> BoundaryShelf::lacks() const {
  const MutexLock lock(mutex_);
  if (!image_) return std::nullopt;
  return lacks_;
}

bool BoundaryShelf::complete(const std::string& lacked,
                             const std::function<void(const Snapshot& image)>& put_in) {
  const MutexLock lock(mutex_);
  if (lacks_ != lacked) return false;  // that evaluation is over
  put_in(*image_.snapshot);
  lacks_.clear();
  return true;
}

}}}  // namespace holdfast::v0_2::internal
