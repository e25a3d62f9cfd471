#include "holdfast/writing/before_commit.h"

#include <exception>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {

struct BeforeCommit::Shared {
  // On the thread of the work.
  void work(const std::vector<std::function<void()>>& all) noexcept {
    std::string why;
    for (const auto& one : all) {
      try {
        one();
      } catch (const std::exception& error) {
        why = text_or_out_of_memory([&] { return what_of(error); });
      } catch (...) {
        why = "an exception of an unknown type";
      }
    }
    const MutexLock lock(mutex);
    failure = std::move(why);
    busy = false;
    over.notify_all();
  }

  Mutex mutex;
  CondVar over;
  std::vector<std::function<void()>> works HOLDFAST_GUARDED_BY(mutex);
  bool busy HOLDFAST_GUARDED_BY(mutex) = false;
  std::string failure HOLDFAST_GUARDED_BY(mutex);
};

BeforeCommit::BeforeCommit() : shared_(std::make_shared<Shared>()) {}

void BeforeCommit::add(std::function<void()> work) {
  const MutexLock lock(shared_->mutex);
  if (work) shared_->works.push_back(std::move(work));
}

// While the thread of an earlier commit hangs, nothing waits for it again.
void BeforeCommit::begin() noexcept {
  const MutexLock lock(shared_->mutex);
  if (shared_->works.empty() || shared_->busy) return;
  try {
    std::thread([shared = shared_, works = shared_->works] { shared->work(works); }).detach();
    shared_->busy = true;
    until_ = Clock::real().now() + kPatience;
  } catch (const std::exception& error) {
    shared_->failure = text_or_out_of_memory([&] { return what_of(error); });
  }
}

void BeforeCommit::wait() noexcept {
  std::string failure;
  bool slow = false;
  {
    const MutexLock lock(shared_->mutex);
    shared_->over.wait_for(shared_->mutex, until_ - Clock::real().now(),
                           [this]() HOLDFAST_REQUIRES(shared_->mutex) { return !shared_->busy; });
    slow = shared_->busy;
    if (!slow) failure = std::exchange(shared_->failure, {});
  }
  static constexpr char kMayBeLost[] =
      "rows of metrics may not survive what their checkpoint survives (training goes on): {}";
  if (slow && !std::exchange(told_slow_, true))
    log_warning(kMayBeLost, "they are not synced within " + format_duration(kPatience));
  if (!failure.empty() && !std::exchange(told_failure_, true)) log_warning(kMayBeLost, failure);
}

}}  // namespace holdfast::v0_2
