#include "holdfast/staging/late_stager.h"

#include <exception>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/thread/beside_training.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

LateStager::~LateStager() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    wanted_ = nullptr;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LateStager::begin(std::unique_ptr<LateCopy> copy, std::shared_ptr<PieceDigests> digests) {
  copy_ = std::move(copy);
  digests_ = std::move(digests);
  {
    const MutexLock lock(mutex_);
    wanted_ = copy_.get();
  }
  if (thread_.joinable()) {
    wake_.notify_one();
    return;
  }
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::exception& error) {
    log_debug("no thread to stage beside the training ({}): before_update() copies", error.what());
  }
}

void LateStager::complete() noexcept {
  if (!copy_) return;
  // The training waits from here on, and a digest takes four times the instructions of the copy.
  if (digests_) digests_->stop();
  copy_->run();
  // The training thread helps: run() may be called on several threads, and each copies what is left.
  const MutexLock lock(mutex_);
  // A thread that has not begun need not begin any more.
  wanted_ = nullptr;
  rest_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return !copying_; });
  copy_->hold_update();
}

void LateStager::arrive() {
  complete();
  copy_->arrive();
}

std::unique_ptr<LateCopy> LateStager::take() noexcept {
  complete();
  digests_.reset();
  return std::move(copy_);
}

void LateStager::work() {
  // Woken on busy cores, this thread would take the training's own core: in some saves the training stood
  // still for 2 to 5 ms.
  work_beside_training();
  MutexLock lock(mutex_);
  while (true) {
    wake_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return stopping_ || wanted_ != nullptr; });
    if (stopping_) return;
    LateCopy* const copy = std::exchange(wanted_, nullptr);
    PieceDigests* const digests = digests_.get();
    copying_ = true;
    lock.unlock();
    if (digests != nullptr) {
      copy->run_digesting(*digests);
    } else {
      copy->run();
    }
    lock.lock();
    copying_ = false;
    rest_.notify_all();
  }
}

}}}  // namespace holdfast::v0_2::internal
