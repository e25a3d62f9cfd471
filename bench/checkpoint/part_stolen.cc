// CPU time that saving takes from training. One busy thread per core counts its turns, in pairs of windows
// with commits and without. Also reports the kernel's processor time of all other threads: steadier, but
// blind to evicted caches and to the kernel's own workers.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/async_writer.h"
#include "holdfast/writing/file_verifier.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

double processor_seconds(clockid_t whose) {
  timespec time{};
  ::clock_gettime(whose, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// A piece of arithmetic in the first-level cache, again and again.
class BusyThreads {
 public:
  explicit BusyThreads(int count) : turns_(static_cast<std::size_t>(count)) {
    for (Counter& counter : turns_) {
      threads_.emplace_back([this, &counter] {
        float values[1024];
        for (int i = 0; i < 1024; ++i) values[i] = 1.0F + 1e-4F * static_cast<float>(i);
        while (!stop_.load(std::memory_order_relaxed)) {
          for (float& value : values) value = value * 0.999F + 0.001F;
          asm volatile("" : : "r"(values) : "memory");
          counter.value.store(counter.value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        }
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

  double turns() const {
    double sum = 0;
    for (const Counter& counter : turns_) sum += static_cast<double>(counter.value.load());
    return sum;
  }
  double count() const { return static_cast<double>(turns_.size()); }
  // Of all threads of this process but these.
  double processor_seconds_of_others() {
    double seconds = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
    for (std::thread& thread : threads_) {
      clockid_t clock{};
      if (::pthread_getcpuclockid(thread.native_handle(), &clock) == 0) seconds -= processor_seconds(clock);
    }
    return seconds;
  }

 private:
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> value = 0;
  };
  std::vector<Counter> turns_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
};

// A staged image and the writer's thread, without anything that stages.
class BareWriter {
 public:
  BareWriter(TrainingState& state, const std::filesystem::path& directory)
      : store_(FileSystem::real(), Clock::real(), {.directory = directory, .keep = KeepLast{2}}, verifier_) {
    store_.preflight();
    const AttemptNumber attempt = store_.claim();
    store_.recover();
    verifier_.stop_keeping();
    snapshot_.attributes = state.source().attributes();
    put_run_record(snapshot_.attributes, {.attempt = attempt});
    const std::vector<TensorSpec> tensors = state.source().describe();
    plan_ = make_file_plan(tensors, attribute_capacity_for(snapshot_.attributes, tensors));
    snapshot_.layout = plan_->layout;
    snapshot_.arena = make_image(*plan_);
    state.source().copy_tensors(*plan_->layout, snapshot_.arena->bytes(), Part::all);
    RunState run;
    run.attempt = attempt;
    writer_.emplace(store_, Clock::real(), losses_, run);
  }
  // Bytes written.
  double save() {
    snapshot_.step += 1;
    WriteRequest request;
    request.snapshot = std::make_shared<const Snapshot>(snapshot_);
    request.plan = plan_;
    const SaveHandle handle = writer_->submit(std::move(request));
    if (handle.wait() != SaveStatus::durable) throw Error(handle.error(), ExitCode::io_failed);
    return static_cast<double>(plan_->layout->length());
  }

 private:
  FileVerifier verifier_{2};
  CheckpointStore store_;
  LossRing losses_;
  Snapshot snapshot_;
  std::shared_ptr<const FilePlan> plan_;
  std::optional<AsyncWriter> writer_;
};

struct Window {
  double seconds = 0;
  double turns = 0;
  double bytes = 0;
  double others = 0;  // processor time that was not the busy threads'
};

// At least so long; with `save`, as many saves as begin in that time.
Window window(BusyThreads& busy, double seconds, const std::function<double()>& save) {
  Window out;
  const double others = busy.processor_seconds_of_others();
  const double turns = busy.turns();
  const double begin = now();
  if (save) {
    while (now() - begin < seconds) out.bytes += save();
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  out.seconds = now() - begin;
  out.turns = busy.turns() - turns;
  out.others = busy.processor_seconds_of_others() - others;
  return out;
}

// Core-milliseconds a GB.
double stolen(const BusyThreads& busy, const Window& with, const Window& without) {
  const double turns_a_core_second = without.turns / without.seconds / busy.count();
  const double missing = with.seconds * busy.count() - with.turns / turns_a_core_second;
  return missing * 1e3 / (with.bytes / 1e9);
}

}  // namespace

void measure_stolen(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 6 * state.bytes() + (16u << 20), "the stolen part with " + spec.name);
  Ours ours(state, bench.scratch.path() / ("stolen-staged-" + spec.name));
  BareWriter writer(state, bench.scratch.path() / ("stolen-" + spec.name));
  writer.save();
  const double seconds = bench.options.quick ? 0.1 : state.bytes() > 1'000'000'000 ? 3.0 : 1.5;
  std::vector<double> alone;
  std::vector<double> staged;
  std::vector<double> noise;
  std::vector<double> own;
  {
    BusyThreads busy(this_machine(bench.scratch.path()).cores);
    for (int repetition = -1; repetition < bench.options.repetitions; ++repetition) {
      bench.progress("stolen, " + spec.name, repetition, bench.options.repetitions);
      settle(bench.scratch.path());
      const Window before = window(busy, seconds, {});
      const Window writing = window(busy, seconds, [&] { return writer.save(); });
      settle(bench.scratch.path());
      const Window between = window(busy, seconds, {});
      const Window staging = window(busy, seconds, [&] {
        ours.save();
        return static_cast<double>(ours.file_bytes());
      });
      if (repetition < 0) continue;
      alone.push_back(stolen(busy, writing, before));
      own.push_back(writing.others * 1e3 / (writing.bytes / 1e9));
      staged.push_back(stolen(busy, staging, between));
      // What two windows without a save differ by, as if it belonged to the bytes of one with saves.
      Window idle = between;
      idle.bytes = writing.bytes;
      noise.push_back(std::abs(stolen(busy, idle, before)));
    }
  }
  Section section{.part = "stolen",
                  .state = spec.name,
                  .title = spec.name + ", " + state.words() + ": CPU taken from busy threads, one a core",
                  .rows = {}};
  section.rows.push_back({.key = "stolen.writer",
                          .what = "the writer alone, from a staged image",
                          .value = median(alone),
                          .text = fixed(median(alone), 1) + " core-ms/GB",
                          .goal = Goal{Goal::Kind::at_most, 40},
                          .samples = alone,
                          .note = "the goal is about this one; two windows without a save differ by " +
                                  fixed(median(noise), 1)});
  section.rows.push_back({.key = "stolen.own",
                          .what = "the same, as processor time of its threads",
                          .value = median(own),
                          .text = fixed(median(own), 1) + " core-ms/GB",
                          .samples = own,
                          .note = "reading every byte once, to hash it, is most of it"});
  section.rows.push_back({.key = "stolen.staged",
                          .what = "with the copy inside after_step",
                          .value = median(staged),
                          .text = fixed(median(staged), 1) + " core-ms/GB",
                          .samples = staged});
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
