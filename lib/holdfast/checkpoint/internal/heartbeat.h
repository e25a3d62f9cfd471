// Tells people and probes every 10 s what the run does (store/run_progress.h), on a thread of its own:
// neither a long write nor a training thread that hangs delays it. A volume that hangs stops it, and delays
// nothing.
//
// Errors: none; without a thread or memory there is no progress file. Threads: the training thread; `sample`
// runs on the heartbeat's thread, and never after stop() has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/internal/disk_thread.h"
#include "holdfast/store/run_progress.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// How fast the step moves, and how long it has stood still: to one beat.
class Pace {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(1);

  // Only while it trains is a step that stands still one that takes long.
  void note(SteadyTime now, std::int64_t step, bool trains = true);
  void put(RunProgress& progress) const;

 private:
  std::deque<std::pair<SteadyTime, std::int64_t>> marks_;  // the last minute's, and one before
  SteadyTime moved_{};
};

class Heartbeat {
 public:
  // Soon after the start, so that a first look finds loss and speed.
  static constexpr Duration kFirst = std::chrono::seconds(2);
  static constexpr Duration kInterval = std::chrono::seconds(10);

  // What the run does; false: it must not write any longer, because a newer attempt has taken over.
  using Sample = std::function<bool(RunProgress&)>;

  Heartbeat() = default;
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Call at most once.
  void start(FileSystem& file_system, const std::filesystem::path& run_directory, AttemptNumber attempt,
             const Clock& clock, Sample sample, Duration first = kFirst,
             Duration interval = kInterval) noexcept;
  // Where the loop ends; -1: the program has not told it. Any thread.
  void expect_last_step(std::int64_t step) noexcept { last_step_.store(step, std::memory_order_relaxed); }
  std::int64_t last_step() const noexcept { return last_step_.load(std::memory_order_relaxed); }
  // The training is over, and its last save begins. The step stands still from here on.
  void ending() noexcept;
  // One last beat, then none. A beat that hangs in the disk for longer than `patience` is left behind; it
  // uses the file system until the disk answers.
  void stop(Duration patience) noexcept { thread_.stop(patience); }
  static constexpr Duration kPatience = DiskThread::kPatience;

 private:
  class Beats;

  std::atomic<std::int64_t> last_step_{-1};
  std::shared_ptr<Beats> beats_;  // null: there is no thread
  DiskThread thread_;
};

}}}  // namespace holdfast::v0_2::internal
