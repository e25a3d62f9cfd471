// CPU time that saving takes from training. One busy thread per core counts its turns, in pairs of windows with
// commits and without, in random order. Also reports the kernel's processor time of all other threads, beside busy
// threads and on idle cores: steadier, but blind to evicted caches and to the kernel's own workers; and their
// instructions and cycles where the machine counts them.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "counters.h"
#include "holdfast/base/error.h"
#include "holdfast/snapshot/piece_digests.h"
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
        counter.thread = ::gettid();
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
  // Their thread ids.
  std::set<pid_t> ids() const {
    std::set<pid_t> ids;
    for (const Counter& counter : turns_) {
      while (counter.thread == 0) std::this_thread::yield();
      ids.insert(counter.thread);
    }
    return ids;
  }
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
    std::atomic<pid_t> thread = 0;
  };
  std::vector<Counter> turns_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_ = false;
};

// A staged image and the writer's thread, without anything that stages.
class BareWriter {
 public:
  BareWriter(TrainingState& state, const std::filesystem::path& directory)
      : state_(state),
        store_(FileSystem::real(), Clock::real(), {.directory = directory, .keep = KeepLast{2}}, verifier_) {
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
    state.source().copy(*plan_->layout, snapshot_.arena->bytes(), Part::all);
    RunState run;
    run.attempt = attempt;
    writer_.emplace(store_, Clock::real(), losses_, run);
  }
  // Bytes written. The writer digests the image itself.
  double save() {
    snapshot_.digests = nullptr;
    return write();
  }
  // The same with a late copy before: on a thread of its own, which digests what it copies.
  double save_late() {
    state_.source().copy(*plan_->layout, snapshot_.arena->bytes(), Part::early);
    const auto copy = state_.source().copy(*plan_->layout, snapshot_.arena->bytes(), Part::late);
    const auto digests = std::make_shared<PieceDigests>(snapshot_);
    std::thread([&] { copy->run_digesting(*digests); }).join();
    snapshot_.digests = digests;
    digested_ = static_cast<double>(digests->bytes());
    return write();
  }
  // Bytes that the writer of a late save reads to hash them, for each byte of state.
  double read_again() const {
    const auto state = static_cast<double>(state_.bytes());
    return 1 - digested_ / state + digested_ / state / static_cast<double>(kRecheckEvery);
  }

 private:
  double write() {
    snapshot_.step += 1;
    WriteRequest request;
    request.snapshot = std::make_shared<const Snapshot>(snapshot_);
    request.plan = plan_;
    const SaveHandle handle = writer_->submit(std::move(request));
    if (handle.wait() != SaveStatus::durable) throw Error(handle.error(), ExitCode::io_failed);
    return static_cast<double>(plan_->layout->length());
  }

  TrainingState& state_;
  double digested_ = 0;
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
  Counts counts;      // theirs too
};

using Save = std::function<double()>;  // returns bytes

// At least so long; with `save`, as many saves as begin in that time.
Window window(BusyThreads& busy, const Counters& counters, double seconds, const Save& save) {
  Window out;
  const Counts counts = counters.read();
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
  out.counts = counters.read() - counts;
  return out;
}

double core_milliseconds_a_gb(double seconds, double bytes) { return seconds * 1e3 / (bytes / 1e9); }

double stolen(const BusyThreads& busy, const Window& with, const Window& without) {
  const double turns_a_core_second = without.turns / without.seconds / busy.count();
  const double missing = with.seconds * busy.count() - with.turns / turns_a_core_second;
  return core_milliseconds_a_gb(missing, with.bytes);
}

// One way to save, and what was measured of it.
struct Way {
  std::string key;
  Save save;
  std::vector<double> idle = {}, taken = {}, own = {};  // core-ms/GB
  std::vector<double> user = {}, kernel = {};           // instructions a byte, beside busy threads
  std::vector<double> cycles = {};                      // a byte, both modes
};

void measure_idle(Way& way, double seconds) {
  double bytes = 0;
  const double before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double begin = now();
  while (now() - begin < seconds) bytes += way.save();
  way.idle.push_back(core_milliseconds_a_gb(processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - before, bytes));
}

Row row_of(std::string key, std::string what, const std::vector<double>& samples, const char* unit,
           std::optional<Goal> goal = {}, std::string note = {}) {
  return {.key = std::move(key),
          .what = std::move(what),
          .value = median(samples),
          .text = fixed(median(samples), 1) + unit,
          .goal = goal,
          .samples = samples,
          .note = std::move(note),
          .interval = interval_of_median(samples)};
}

}  // namespace

void measure_stolen(Bench& bench, const StateSpec& spec) {
  TrainingState state(spec);
  require_room(bench.scratch.path(), 6 * state.bytes() + (16u << 20), "the stolen part with " + spec.name);
  Ours ours(state, bench.scratch.path() / ("stolen-staged-" + spec.name));
  BareWriter writer(state, bench.scratch.path() / ("stolen-" + spec.name));
  std::vector<Way> ways;
  ways.push_back({.key = "late", .save = [&] { return writer.save_late(); }});
  ways.push_back({.key = "writer", .save = [&] { return writer.save(); }});
  ways.push_back({.key = "staged", .save = [&] {
                    ours.save();
                    return static_cast<double>(ours.file_bytes());
                  }});
  for (const Way& way : ways) way.save();

  const double seconds = bench.options.quick ? 0.1 : state.bytes() > 1'000'000'000 ? 3.0 : 1.0;
  for (int repetition = -1; repetition < bench.options.repetitions; ++repetition) {
    bench.progress("idle cores, " + spec.name, repetition, bench.options.repetitions);
    settle(bench.scratch.path());
    Way warm_up{.key = {}, .save = ways.front().save};
    measure_idle(repetition < 0 ? warm_up : ways.front(), seconds);
  }
  std::vector<double> noise;
  std::string no_counters;
  {
    BusyThreads busy(this_machine(bench.scratch.path()).cores);
    const Counters counters(busy.ids());
    no_counters = counters.why_not();
    Coin coin;
    std::optional<Window> last;
    for (int repetition = -1; repetition < bench.options.repetitions; ++repetition) {
      bench.progress("stolen, " + spec.name, repetition, bench.options.repetitions);
      for (Way& way : ways) {
        settle(bench.scratch.path());
        const bool save_first = coin();
        Window with;
        if (save_first) with = window(busy, counters, seconds, way.save);
        const Window without = window(busy, counters, seconds, {});
        if (!save_first) with = window(busy, counters, seconds, way.save);
        if (repetition < 0) continue;
        way.taken.push_back(stolen(busy, with, without));
        way.own.push_back(core_milliseconds_a_gb(with.others, with.bytes));
        way.user.push_back(with.counts.user_instructions / with.bytes);
        way.kernel.push_back(with.counts.kernel_instructions / with.bytes);
        way.cycles.push_back((with.counts.user_cycles + with.counts.kernel_cycles) / with.bytes);
        if (last) {  // what two windows without a save differ by, as if it belonged to the bytes of one with saves
          Window idle = without;
          idle.bytes = with.bytes;
          noise.push_back(std::abs(stolen(busy, idle, *last)));
        }
        last = without;
      }
    }
  }
  const Way& late = ways[0];
  const Way& alone = ways[1];
  const Way& staged = ways[2];
  constexpr const char* kUnit = " core-ms/GB";
  Section section{.part = "stolen",
                  .state = spec.name,
                  .title = spec.name + ", " + state.words() + ": CPU that saving takes",
                  .rows = {}};
  auto& rows = section.rows;
  rows.push_back(row_of("stolen.idle", "late copy and writer, on idle cores: processor time", late.idle,
                        kUnit, Goal{Goal::Kind::at_most, 60}));
  rows.push_back(row_of("stolen.late", "the same, taken from busy threads, one a core", late.taken, kUnit,
                        Goal{Goal::Kind::at_most, 100},
                        "two windows without a save differ by " + fixed(median(noise), 1)));
  rows.push_back(row_of("stolen.late.own", "the same, beside them: processor time", late.own, kUnit));
  rows.push_back({.key = "stolen.late.read_again",
                  .what = "the same: bytes that the writer hashes",
                  .value = writer.read_again(),
                  .text = fixed(writer.read_again(), 3) + " of each byte",
                  .note = "what was not digested with the copy, and a sample of the rest"});
  rows.push_back(
      row_of("stolen.writer", "the writer alone, digesting: taken from busy threads", alone.taken, kUnit));
  rows.push_back(row_of("stolen.own", "the same, beside them: processor time", alone.own, kUnit));
  rows.push_back(row_of("stolen.staged", "with the copy inside after_step", staged.taken, kUnit));
  if (no_counters.empty()) {
    for (const Way& way : ways) {
      const std::string key = "stolen.counts." + way.key;
      rows.push_back(row_of(key + ".user", way.key + ": instructions a byte, user mode", way.user, ""));
      rows.push_back(row_of(key + ".kernel", way.key + ": instructions a byte, kernel", way.kernel, ""));
      rows.push_back(row_of(key + ".cycles", way.key + ": cycles a byte, both", way.cycles, ""));
    }
  } else {
    bench.report.leave_out("instructions and cycles of every thread", no_counters);
  }
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
