// What happens to an attempt, on its way to the attempt's ledger (`ledger-a0003.jsonl`): from any thread into
// a bounded ring, without a lock, an allocation or a system call; the writer's thread empties it about once a
// second. What finds the ring full is dropped, counted, and said in the ledger and in the log.
//
// Every line is a flat JSON object with "event", "t" (wall time, Unix milliseconds) and "up_ms" (time on the
// run's steady clock since the Checkpointer was made). The events, in the words of their fields:
//
//   start        attempt, step, from_attempt, host, boot, startup_ms (since the process began), resume_ms,
//                version: where the training began; its "up_ms" is where its time begins
//   progress     step, waited_ms (the training, for saves, so far), risk_ms: every 10 s; a sign of life
//   commit       step, ms, boundary_ms (the "up_ms" at which the training stood at that step), waited_ms, and
//                the figures of save_figures.h: a save became durable
//   notice       source, kind (checkpoint, stop, deadline, at-risk, withdrawn), left_ms (to its deadline,
//                when it was first seen), hibernates, text; "t" and "up_ms" are of the first sight
//   pause, go on step, why: the training waits for the end, and does not any longer
//   stall        what, ms: something took long that people should know of
//   source       name, polls, failures, blind_ms: how well a source sees; when its blind time has grown,
//                and before the end
//   lost         count: lines that were dropped
//   end          phase, code, step, durable_step, reason, and what the saves cost
//   losses       of loss_ring.h
//
// Errors: none; a ledger is best effort. Threads: any; drain by one at a time, and observe before that.
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
#include "holdfast/checkpoint/ledger_line.h"
#include "holdfast/checkpoint/save_figures.h"
#include "holdfast/interruption/notice.h"
#include "holdfast/interruption/source.h"
#include "holdfast/store/run_state.h"

namespace holdfast::inline v1 {

struct LedgerStart {
  AttemptNumber attempt = 0;
  std::int64_t step = 0;
  AttemptNumber from_attempt = 0;  // whose checkpoint it began with; 0: none of this directory
  std::string host = {};
  std::string boot = {};
  Duration startup{};  // from the process's begin until now
  Duration resume{};   // of that, resume()
};

struct LedgerEnd {
  RunPhase phase = RunPhase::complete;
  int exit_code = 0;
  std::int64_t step = 0;
  std::int64_t durable_step = -1;
  std::string_view reason = {};
};

// How well one source sees.
struct SourceReport {
  std::string name;
  SourceFigures figures;
};

class Ledger {
 public:
  static constexpr std::size_t kCapacity = 256;  // lines; 256 KiB
  static constexpr Duration kProgressInterval = std::chrono::seconds(10);
  static constexpr Duration kBlindGrowth = std::chrono::seconds(5);

  explicit Ledger(const Clock& clock);

  void notice(const Notice& notice) noexcept;  // a Monitor's listener may call this
  void pause(std::int64_t step, std::string_view why) noexcept;
  void go_on(std::int64_t step, std::string_view why) noexcept;
  void stall(std::string_view what, Duration took) noexcept;
  // Any other: with its time already in it (stamped()). False: dropped and counted.
  bool note(LedgerLine& line) noexcept;
  // A line of this event with the time of now, or of then.
  LedgerLine stamped(std::string_view event) const noexcept;
  LedgerLine stamped(std::string_view event, SteadyTime when) const noexcept;
  std::int64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }

  // What drain() adds every kProgressInterval. Called on the thread that drains.
  struct Sample {
    std::int64_t step = 0;
    RunFigures figures;
    std::vector<SourceReport> sources;
  };
  void observe(std::function<Sample()> sample) { sample_ = std::move(sample); }

  using Write = std::function<void(const std::string& line)>;
  // Everything noted so far, oldest first. What `write` throws leaves as it is, and the line stays.
  void drain(const Write& write);
  // Lines of their own, for whoever has the ledger at hand: the first, and the last after all that waits.
  std::string start_line(const LedgerStart& start) const;
  void end(const LedgerEnd& end, const Write& write);
  // The members that every commit line carries, with a comma in front.
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

  // The draining thread's.
  std::uint64_t read_ = 0;
  std::int64_t dropped_told_ = 0;
  SteadyTime last_sample_;
  std::function<Sample()> sample_;
  std::vector<SourceReport> told_;
};

// "deadline": as a notice's line says it.
std::string_view word_of(NoticeKind kind);

}  // namespace holdfast::inline v1
