// Carries events of an attempt to its ledger, `ledger-a0003.jsonl`. Any thread puts a line into a bounded
// ring, without a lock, an allocation or a system call. The writer's thread empties the ring about once a
// second. A line that finds the ring full is dropped; the ledger and the log report how many.
//
//   ledger.stall("fsync", took);  // {"event":"stall","t":…,"up_ms":…,"ms":5210.000,"what":"fsync"}
//
// docs/operations.md#the-ledger describes every event and field.
// Errors: none; a ledger is best effort. Threads: any. Only one thread drains, and observe() precedes it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/notice.h"
#include "holdfast/interruption/source.h"
#include "holdfast/ledger/ledger_line.h"
#include "holdfast/ledger/save_figures.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {

struct LedgerStart {
  AttemptNumber attempt = 0;
  std::int64_t step = 0;
  AttemptNumber from_attempt = 0;  // wrote the checkpoint to start from; 0: none in this directory
  std::string host = {};
  std::string boot = {};
  Duration startup{};  // from program start until now
  Duration resume{};   // the part of `startup` that resume() took
};

struct LedgerEnd {
  RunPhase phase = RunPhase::complete;
  int exit_code = 0;
  std::int64_t step = 0;
  std::int64_t durable_step = -1;
  std::string_view reason = {};
};

// How well one source can see.
struct SourceReport {
  std::string name;
  SourceFigures figures;
};

class Ledger {
 public:
  static constexpr std::size_t kCapacity = 256;  // lines; they take 256 KiB
  static constexpr Duration kProgressInterval = std::chrono::seconds(10);
  // A source whose blind time has grown by this much gets a new line.
  static constexpr Duration kBlindGrowth = std::chrono::seconds(5);

  explicit Ledger(const Clock& clock);

  void notice(const Notice& notice) noexcept;  // may be called by a Monitor's listener
  void pause(std::int64_t step, std::string_view why) noexcept;
  void go_on(std::int64_t step, std::string_view why) noexcept;
  // Between pause() and go_on(): training waits for the end of its machine.
  bool pausing() const noexcept { return pausing_.load(std::memory_order_relaxed); }
  void stall(std::string_view what, Duration took) noexcept;
  // Any other event. `line` comes from stamped(). False if the line was dropped and counted.
  bool note(LedgerLine& line) noexcept;
  // Begins a line of this event, with the current time or the time `when`.
  LedgerLine stamped(std::string_view event) const noexcept;
  LedgerLine stamped(std::string_view event, SteadyTime when) const noexcept;
  std::int64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  // What drain() samples every kProgressInterval. The draining thread calls `sample`.
  struct Sample {
    std::int64_t step = 0;
    std::string_view phase = {};  // "evaluation", "start": no steps are expected. Empty: training
    RunFigures figures;
    std::vector<SourceReport> sources;
  };
  void observe(std::function<Sample()> sample) { sample_ = std::move(sample); }

  using Write = std::function<void(const std::string& line)>;
  // Writes all lines so far, oldest first. If `write` throws, the exception passes and the line stays.
  void drain(const Write& write);
  // Lines that bypass the ring: the first line, and the last one after everything that waits.
  void start(const LedgerStart& start);
  void end(const LedgerEnd& end, const Write& write);
  // The members that every commit line carries, with a leading comma.
  std::string commit_members(SteadyTime boundary, Duration waited) const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> turn{0};
    std::uint32_t length = 0;
    std::array<char, LedgerLine::kLongest> text;
  };
  void sample(const Write& write);
  void tell_sources(const std::vector<SourceReport>& sources, const Write& write, bool last);

  const Clock& clock_;
  const SteadyTime began_;
  std::unique_ptr<std::array<Slot, kCapacity>> slots_;
  alignas(64) std::atomic<std::uint64_t> written_{0};
  alignas(64) std::atomic<std::int64_t> dropped_{0};
  std::atomic<bool> pausing_{false};

  std::string start_;  // until it is written
  // Used by the draining thread alone.
  std::uint64_t read_ = 0;
  std::int64_t dropped_told_ = 0;
  SteadyTime last_sample_;
  std::function<Sample()> sample_;
  std::vector<SourceReport> told_;
};

// The word in a notice's line: "deadline".
std::string_view word_of(NoticeKind kind);

}}  // namespace holdfast::v0_2
