#include "holdfast/metrics/background.h"

#include <exception>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/base/text.h"
#include "holdfast/metrics/guarded_sink.h"
#include "holdfast/metrics/system_sampler.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Early enough that a slow sink still has three quarters of the space to catch up.
constexpr std::size_t kWakeAt = BackgroundSinks::kMostWaiting / 4;

// Passes an event to the method of its type.
struct Pass {
  MetricSink& sink;
  void operator()(const BeginEvent& event) const { sink.begin(event); }
  void operator()(const StepEvent& event) const { sink.step(event); }
  void operator()(const EvaluationEvent& event) const { sink.evaluation(event); }
  void operator()(const HistogramEvent& event) const { sink.histogram(event); }
  void operator()(const SystemEvent& event) const { sink.system(event); }
  void operator()(const StatusEvent& event) const { sink.status(event); }
  void operator()(const EndEvent& event) const { sink.end(event); }
};

}  // namespace

class BackgroundSinks::Worker {
 public:
  Worker(std::vector<std::unique_ptr<MetricSink>> sinks, BackgroundOptions options)
      : options_(std::move(options)) {
    for (auto& sink : sinks)
      sinks_.push_back(std::make_unique<GuardedSink>("a metrics sink", std::move(sink)));
    thread_ = std::thread([this] { run(); });
  }

  void push(Event event) noexcept {
    const MutexLock lock(mutex_);
    // An event after the end would come behind EndEvent, which is the last.
    if (closed_) return;
    const bool many =
        std::holds_alternative<StepEvent>(event) || std::holds_alternative<HistogramEvent>(event);
    // Only steps and histograms come in numbers. All other events are few and must not be lost.
    if (many && waiting_.size() >= kMostWaiting) {
      ++dropped_;
      return;
    }
    try {
      waiting_.push_back(std::move(event));
    } catch (const std::bad_alloc&) {
      ++dropped_;
      return;
    }
    const auto* const step = std::get_if<StepEvent>(&waiting_.back());
    // A file exists from the start, and what a checkpoint covers is written soon after its commit.
    const bool now = std::holds_alternative<BeginEvent>(waiting_.back()) || (step != nullptr && step->saved);
    urgent_ = urgent_ || now;
    // No wake-up for each step: that would be a system call in the training loop.
    if (now || waiting_.size() == kWakeAt) wake_.notify_one();
  }

  // Returns when the thread has written and synced what was pushed before, or has ended. Throws what a sync
  // threw last.
  void sync() {
    const MutexLock lock(mutex_);
    const std::int64_t wanted = ++syncs_wanted_;
    urgent_ = true;
    wake_.notify_one();
    synced_wake_.wait(mutex_, [&]() HOLDFAST_REQUIRES(mutex_) { return synced_ >= wanted || ended_; });
    if (!not_synced_.empty()) throw Error(not_synced_);
  }

  // False: the thread has not ended within the patience.
  bool close() noexcept {
    if (!thread_.joinable()) return true;
    {
      MutexLock lock(mutex_);
      closed_ = true;
      wake_.notify_one();
      if (!ended_wake_.wait_for(mutex_, options_.patience,
                                [this]() HOLDFAST_REQUIRES(mutex_) { return ended_; })) {
        // The thread waits for a sick disk. Training has ended and must not wait with it.
        left_behind_ = true;
        thread_.detach();
        log_warning("metrics could not be written within {}; the run ends without the last ones",
                    format_duration(options_.patience));
        return false;
      }
    }
    thread_.join();
    return true;
  }

  bool in_owner() const noexcept { return process_.is_this_one(); }

  // For a forked child, which has no such thread.
  void forget() noexcept {
    abandon(thread_);
    abandon(wake_);
    abandon(ended_wake_);
    abandon(synced_wake_);
  }

 private:
  void run() {
    SteadyTime sampled = Clock::real().now();
    // On this thread, because loading the GPUs' library takes longer than a step.
    sampler_.sample();  // rates count from here; loads the GPUs' library
    std::vector<Event> events;
    std::int64_t synced = 0;
    for (bool open = true; open;) {
      std::int64_t dropped = 0;
      std::int64_t wanted = 0;
      {
        MutexLock lock(mutex_);
        wake_.wait_for(mutex_, options_.look_every, [this]() HOLDFAST_REQUIRES(mutex_) {
          return closed_ || urgent_ || waiting_.size() >= kWakeAt;
        });
        // Swapped: the lock is held for a moment only, and both lists keep their memory.
        events.swap(waiting_);
        urgent_ = false;
        open = !closed_;
        dropped = dropped_;
        wanted = syncs_wanted_;
      }
      if (dropped > 0 && !std::exchange(complained_, true)) {
        log_warning("metrics are written too slowly: {} events are dropped so far (training goes on)",
                    dropped);
      }
      const SteadyTime now = Clock::real().now();
      // One more sample at the end, so that totals cover the whole run.
      const bool sample = now - sampled >= options_.system_every || !open;
      if (sample) sampled = now;
      deliver(events, sample);
      events.clear();
      if (wanted > synced) sync_rows(synced = wanted);
    }
    const MutexLock lock(mutex_);
    ended_ = true;
    ended_wake_.notify_all();
    synced_wake_.notify_all();
  }

  void sync_rows(std::int64_t wanted) noexcept {
    std::string failure;
    for (const auto& sink : sinks_) {
      try {
        if (const auto sync = sink->row_sync()) sync();
      } catch (const std::exception& error) {
        failure = text_or_out_of_memory([&] { return what_of(error); });
      } catch (...) {
        failure = text_or_out_of_memory([] { return std::string("an exception of an unknown type"); });
      }
    }
    const MutexLock lock(mutex_);
    synced_ = wanted;
    not_synced_ = std::move(failure);
    synced_wake_.notify_all();
  }

  // EndEvent stays the last.
  void deliver(std::vector<Event>& events, bool sample) noexcept {
    try {
      std::optional<Event> end;
      if (!events.empty() && std::holds_alternative<EndEvent>(events.back())) {
        end = std::move(events.back());
        events.pop_back();
      }
      for (const Event& event : events) {
        begun_ = begun_ || std::holds_alternative<BeginEvent>(event);
        to_all(event);
      }
      if (sample) {
        to_all(sampler_.sample());
        if (const auto status = current_status()) to_all(*status);
      }
      if (end) to_all(*end);
      if (!events.empty() || sample) {
        // One flush for each round, so that files are written in large pieces.
        for (const auto& sink : sinks_) sink->flush();
      }
    } catch (const std::exception& error) {
      if (!std::exchange(complained_, true)) log_warning("metrics are incomplete: {}", what_of(error));
    }
  }

  void to_all(const Event& event) {
    for (const auto& sink : sinks_) std::visit(Pass{*sink}, event);
  }

  std::optional<StatusEvent> current_status() {
    // Under the lock: what `status` reads lives until close() has returned.
    const MutexLock lock(mutex_);
    if (!begun_ || left_behind_ || !options_.status) return std::nullopt;
    return options_.status();
  }

  const OwnerProcess process_;
  BackgroundOptions options_;
  std::vector<std::unique_ptr<MetricSink>> sinks_;
  SystemSampler sampler_;
  bool begun_ = false;  // before that there is no status
  bool complained_ = false;

  Mutex mutex_;
  CondVar wake_;
  CondVar ended_wake_;
  CondVar synced_wake_;
  std::vector<Event> waiting_ HOLDFAST_GUARDED_BY(mutex_);
  std::int64_t dropped_ HOLDFAST_GUARDED_BY(mutex_) = 0;
  std::int64_t syncs_wanted_ HOLDFAST_GUARDED_BY(mutex_) = 0;  // calls of sync()
  std::int64_t synced_ HOLDFAST_GUARDED_BY(mutex_) = 0;        // those that are answered
  std::string not_synced_ HOLDFAST_GUARDED_BY(mutex_);         // why the last one failed
  bool closed_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool urgent_ HOLDFAST_GUARDED_BY(mutex_) = false;  // an event that must not wait for the next look
  bool ended_ HOLDFAST_GUARDED_BY(mutex_) = false;
  bool left_behind_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

// Threads that sync rows may outlive the worker. None of them is inside when it goes.
class BackgroundSinks::Door {
 public:
  explicit Door(Worker& worker) : worker_(&worker) {}

  void sync() {
    Worker* worker = nullptr;
    {
      const MutexLock lock(mutex_);
      worker = worker_;
      if (worker == nullptr) return;
      ++inside_;
    }
    struct Leaves {
      Door& door;
      ~Leaves() {
        const MutexLock lock(door.mutex_);
        if (--door.inside_ == 0) door.empty_.notify_all();
      }
    } const leaves{*this};
    worker->sync();
  }

  // After the end of the worker's thread, which holds nobody up any more.
  void close() noexcept {
    const MutexLock lock(mutex_);
    worker_ = nullptr;
    empty_.wait(mutex_, [this]() HOLDFAST_REQUIRES(mutex_) { return inside_ == 0; });
  }

 private:
  Mutex mutex_;
  CondVar empty_;
  Worker* worker_ HOLDFAST_GUARDED_BY(mutex_);
  int inside_ HOLDFAST_GUARDED_BY(mutex_) = 0;
};

BackgroundSinks::BackgroundSinks(std::vector<std::unique_ptr<MetricSink>> sinks, BackgroundOptions options)
    : worker_(std::make_unique<Worker>(std::move(sinks), std::move(options))),
      door_(std::make_shared<Door>(*worker_)) {}

BackgroundSinks::~BackgroundSinks() {
  if (!worker_) return;
  if (!worker_->in_owner()) {
    worker_->forget();
    leave_to_parent(worker_);
    return;
  }
  close();
}

void BackgroundSinks::push(Event event) noexcept {
  if (worker_) worker_->push(std::move(event));
}

void BackgroundSinks::close() noexcept {
  if (!worker_) return;
  if (worker_->close()) {
    door_->close();
  } else {
    leave_to_parent(worker_);  // its thread still uses it
  }
}

void BackgroundSinks::begin(const BeginEvent& event) { push(event); }

void BackgroundSinks::step(const StepEvent& event) {
  StepEvent stamped = event;
  // Stamped here: the worker sees the event up to half a second later.
  if (stamped.at == WallTime{}) stamped.at = Clock::real().wall_now();
  push(stamped);
}

void BackgroundSinks::evaluation(const EvaluationEvent& event) {
  EvaluationEvent stamped = event;
  if (stamped.at == WallTime{}) stamped.at = Clock::real().wall_now();
  push(stamped);
}

void BackgroundSinks::histogram(const HistogramEvent& event) { push(event); }

void BackgroundSinks::end(const EndEvent& event) {
  push(event);
  close();
}

std::function<void()> BackgroundSinks::row_sync() {
  return [door = door_] { door->sync(); };
}

}}  // namespace holdfast::v0_2
