#include "holdfast/writing/before_commit.h"

#include <exception>
#include <string>
#include <system_error>
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

void BeforeCommit::run() noexcept {
  const std::string trouble = text_or_out_of_memory([this]() -> std::string {
    const MutexLock lock(shared_->mutex);
    if (shared_->works.empty()) return {};
    // While the thread of an earlier commit hangs, nothing waits for it again.
    if (!shared_->busy) {
      try {
        std::thread([shared = shared_, works = shared_->works] { shared->work(works); }).detach();
      } catch (const std::system_error& error) {
        return what_of(error);
      }
      shared_->busy = true;
      shared_->over.wait_for(shared_->mutex, kPatience,
                             [this]() HOLDFAST_REQUIRES(shared_->mutex) { return !shared_->busy; });
    }
    return shared_->busy ? "their disk has not answered within " + format_duration(kPatience)
                         : shared_->failure;
  });
  if (trouble.empty() || std::exchange(told_, true)) return;
  log_warning("rows of metrics may not survive what their checkpoint survives (training goes on): {}",
              trouble);
}

}}  // namespace holdfast::v0_2
