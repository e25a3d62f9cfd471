#include "holdfast/checkpoint/internal/heartbeat.h"

#include <exception>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void Pace::note(SteadyTime now, std::int64_t step, bool trains) {
  if (marks_.empty() || step != marks_.back().second || !trains) moved_ = now;
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

// Lives as long as the thread.
class Heartbeat::Beats {
 public:
  Beats(FileSystem& file_system, const std::filesystem::path& run_directory, AttemptNumber attempt,
        const Clock& clock, Sample sample)
      : clock_(clock), file_(file_system, run_directory, attempt), sample_(std::move(sample)) {
    progress_.attempt = attempt;
  }

  void beat(DiskThread::Round& round) noexcept {
    // A run that ends before its first beat needs none: its state tells all.
    if (round.last() && progress_.beat == 0) return;
    try {
      bool wanted = false;
      round.ask([&] { wanted = take_sample(); });
      if (wanted) round.in_disk([this] { file_.write(progress_); });
    } catch (const std::exception& error) {
      // Once, because the next beat fails alike, 10 s later.
      if (!std::exchange(complained_, true)) log_debug("no progress file: {}", what_of(error));
    }
  }
  void ending() noexcept { ending_ = true; }

 private:
  bool take_sample() {
    if (!sample_(progress_)) return false;
    pace_.note(clock_.now(), progress_.step, progress_.phase == TrainingPhase::training);
    pace_.put(progress_);
    if (ending_) progress_.phase = TrainingPhase::saving;
    ++progress_.beat;
    // Wall time, because the reader is another process, often on another machine.
    progress_.unix_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock_.wall_now().time_since_epoch()).count();
    return true;
  }

  const Clock& clock_;
  ProgressFile file_;
  RunProgress progress_;
  Pace pace_;
  bool complained_ = false;
  std::atomic<bool> ending_{false};
  const Sample sample_;
};

void Heartbeat::start(FileSystem& file_system, const std::filesystem::path& run_directory,
                      AttemptNumber attempt, const Clock& clock, Sample sample, Duration first,
                      Duration interval) noexcept {
  try {
    beats_ = std::make_shared<Beats>(file_system, run_directory, attempt, clock, std::move(sample));
    thread_.start(first, [beats = beats_, interval](DiskThread::Round& round) {
      beats->beat(round);
      return interval;
    });
  } catch (const std::exception& error) {
    beats_.reset();
    log_debug("holdfast status will know less of this attempt: {}", what_of(error));
  }
}

void Heartbeat::ending() noexcept {
  if (beats_) beats_->ending();
}

}}}  // namespace holdfast::v0_2::internal
