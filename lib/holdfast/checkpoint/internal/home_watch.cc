#include "holdfast/checkpoint/internal/home_watch.h"

#include <exception>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr Duration kPatience = std::chrono::seconds(5);

}  // namespace

struct HomeWatch::Shared {
  Shared(FileSystem& files, std::filesystem::path directory, Told tell)
      : file_system(files), run_directory(std::move(directory)), told(std::move(tell)) {}

  // False: there is no mirror.
  bool look() noexcept {
    {
      const MutexLock lock(mutex);
      reading = true;
    }
    std::optional<HomeRecord> record;
    try {
      const auto run = file_system.open_directory(run_directory, false);
      if (run) record = read_home_record(*run);
    } catch (const std::exception& error) {
      log_debug("what the mirror says cannot be read: {}", what_of(error));
    }
    const MutexLock lock(mutex);
    reading = false;
    if (!record) return !last.empty();
    try {
      std::string text = to_json(*record);
      if (text != last && told) told(*record);
      last = std::move(text);
    } catch (const std::exception& error) {
      log_debug("what the mirror says is lost: {}", what_of(error));
    }
    return true;
  }

  FileSystem& file_system;
  const std::filesystem::path run_directory;
  Duration interval{};
  Duration without_mirror{};
  Mutex mutex;
  CondVar wake;
  CondVar left;
  Told told HOLDFAST_GUARDED_BY(mutex);  // null after stop()
  std::string last HOLDFAST_GUARDED_BY(mutex);
  bool reading HOLDFAST_GUARDED_BY(mutex) = false;
  bool stopping HOLDFAST_GUARDED_BY(mutex) = false;
  bool over HOLDFAST_GUARDED_BY(mutex) = false;
};

void HomeWatch::start(FileSystem& file_system, const std::filesystem::path& run_directory, Told told,
                      Duration interval, Duration without_mirror) noexcept {
  try {
    shared_ = std::make_shared<Shared>(file_system, run_directory, std::move(told));
    shared_->interval = interval;
    shared_->without_mirror = without_mirror;
    shared_->look();
    thread_ = std::thread([shared = shared_] { run(*shared); });
  } catch (const std::exception& error) {
    shared_.reset();
    log_debug("this run will not know what is home: {}", what_of(error));
  }
}

void HomeWatch::run(Shared& shared) noexcept {
  for (bool mirror = true;;) {
    {
      const MutexLock lock(shared.mutex);
      const Duration wait = mirror ? shared.interval : shared.without_mirror;
      shared.wake.wait_for(shared.mutex, wait,
                           [&]() HOLDFAST_REQUIRES(shared.mutex) { return shared.stopping; });
      if (shared.stopping) {
        shared.over = true;
        shared.left.notify_all();
        return;
      }
    }
    mirror = shared.look();
  }
}

void HomeWatch::stop() noexcept {
  if (!thread_.joinable()) return;
  bool hangs = false;
  {
    const MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake.notify_all();
    // Only a read can hang. A thread that merely waits for a processor is waited for.
    while (!shared_->over && !hangs) {
      const bool was_reading = shared_->reading;
      const bool over = shared_->left.wait_for(
          shared_->mutex, kPatience, [this]() HOLDFAST_REQUIRES(shared_->mutex) { return shared_->over; });
      hangs = !over && was_reading && shared_->reading;
    }
    shared_->told = nullptr;
  }
  hangs ? thread_.detach() : thread_.join();
}

}}}  // namespace holdfast::v0_2::internal
