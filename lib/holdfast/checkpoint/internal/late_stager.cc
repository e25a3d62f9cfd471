#include "holdfast/checkpoint/internal/late_stager.h"

#include <exception>
#include <utility>

#include "holdfast/base/log.h"

namespace holdfast::inline v1::internal {

LateStager::~LateStager() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wanted_ = nullptr;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LateStager::begin(std::unique_ptr<LateCopy> copy) {
  copy_ = std::move(copy);
  {
    const std::lock_guard lock(mutex_);
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
  copy_->run();
  std::unique_lock lock(mutex_);
  wanted_ = nullptr;
  rest_.wait(lock, [this] { return !copying_; });
  copy_->hold_update();
}

std::unique_ptr<LateCopy> LateStager::take() noexcept {
  complete();
  return std::move(copy_);
}

void LateStager::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || wanted_ != nullptr; });
    if (stopping_) return;
    LateCopy* const copy = std::exchange(wanted_, nullptr);
    copying_ = true;
    lock.unlock();
    copy->run();
    lock.lock();
    copying_ = false;
    rest_.notify_all();
  }
}

}  // namespace holdfast::inline v1::internal
