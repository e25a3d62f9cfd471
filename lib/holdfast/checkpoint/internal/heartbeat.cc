#include "holdfast/checkpoint/internal/heartbeat.h"

#include <algorithm>
#include <exception>
#include <optional>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void Pace::note(SteadyTime now, std::int64_t step) {
  if (marks_.empty() || step != marks_.back().second) moved_ = now;
  marks_.emplace_back(now, step);
  // Two marks always stay, because a rate needs both ends.
  while (marks_.size() > 2 && now - marks_[1].first >= kWindow) marks_.pop_front();
}

void Pace::put(RunProgress& progress) const {
  if (marks_.empty()) return;
  const auto& [began, first] = marks_.front();
  const auto& [now, last] = marks_.back();
  progress.still_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - moved_).count();
  const double seconds = std::chrono::duration<double>(now - began).count();
  if (seconds > 0) progress.steps_per_second = static_cast<double>(last - first) / seconds;
}

struct Heartbeat::Shared {
  Shared(FileSystem& file_system, const std::filesystem::path& run_directory, AttemptNumber attempt,
         const Clock& the_clock, Sample the_sample)
      : clock(the_clock), file(file_system, run_directory, attempt), sample(std::move(the_sample)) {
    progress.attempt = attempt;
  }

  const Clock& clock;
  ProgressFile file;     // of the heartbeat's thread
  RunProgress progress;  // likewise
  Pace pace;             // likewise
  bool complained = false;
  Duration first{};
  Duration interval{};
  Mutex mutex;
  CondVar wake;
  CondVar left;
  Sample sample HOLDFAST_GUARDED_BY(mutex);  // null: nobody may be asked any longer
  bool stopping HOLDFAST_GUARDED_BY(mutex) = false;
  bool ending HOLDFAST_GUARDED_BY(mutex) = false;
  bool writing HOLDFAST_GUARDED_BY(mutex) = false;
  bool over HOLDFAST_GUARDED_BY(mutex) = false;

  void beat() noexcept HOLDFAST_EXCLUDES(mutex) {
    try {
      {
        const MutexLock lock(mutex);
        if (!look()) return;
        writing = true;
      }
      file.write(progress);
    } catch (const std::exception& error) {
      if (!std::exchange(complained, true)) log_debug("no progress file: {}", what_of(error));
    }
    const MutexLock lock(mutex);
    writing = false;
  }

  bool look() HOLDFAST_REQUIRES(mutex) {
    if (!sample || !sample(progress)) return false;
    pace.note(clock.now(), progress.step);
    pace.put(progress);
    if (ending) progress.phase = TrainingPhase::saving;
    ++progress.beat;
    progress.unix_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock.wall_now().time_since_epoch()).count();
    return true;
  }
};

void Heartbeat::start(FileSystem& file_system, const std::filesystem::path& run_directory,
                      AttemptNumber attempt, const Clock& clock, Sample sample, Duration first,
                      Duration interval) noexcept {
  try {
    shared_ = std::make_shared<Shared>(file_system, run_directory, attempt, clock, std::move(sample));
    shared_->first = first;
    shared_->interval = interval;
    thread_ = std::thread([shared = shared_] { run(*shared); });
  } catch (const std::exception& error) {
    shared_.reset();
    log_debug("holdfast status will know less of this attempt: {}", what_of(error));
  }
}

void Heartbeat::run(Shared& shared) noexcept {
  for (Duration wait = shared.first;; wait = shared.interval) {
    bool last = false;
    {
      const MutexLock lock(shared.mutex);
      last = shared.wake.wait_for(shared.mutex, wait,
                                  [&]() HOLDFAST_REQUIRES(shared.mutex) { return shared.stopping; });
    }
    // A run that ends before its first beat needs none: its state tells all.
    if (!last || shared.progress.beat > 0) shared.beat();
    if (!last) continue;
    const MutexLock lock(shared.mutex);
    shared.over = true;
    shared.left.notify_all();
    return;
  }
}

void Heartbeat::ending() noexcept {
  if (!shared_) return;
  const MutexLock lock(shared_->mutex);
  shared_->ending = true;
}

void Heartbeat::stop(Duration patience) noexcept {
  if (!thread_.joinable()) return;
  const Duration slice = std::max<Duration>(patience, std::chrono::milliseconds(10));
  bool hangs = false;
  {
    const MutexLock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->wake.notify_all();
    // Only a write can hang. A thread that merely waits for a processor is waited for.
    while (!shared_->over && !hangs) {
      const bool was_writing = shared_->writing;
      const bool over = shared_->left.wait_for(
          shared_->mutex, slice, [this]() HOLDFAST_REQUIRES(shared_->mutex) { return shared_->over; });
      hangs = !over && was_writing && shared_->writing;
    }
    // The thread outlives the run, and must not ask it any more.
    if (hangs) shared_->sample = nullptr;
  }
  // A thread that hangs in the disk could not be joined.
  hangs ? thread_.detach() : thread_.join();
}

}}}  // namespace holdfast::v0_2::internal
