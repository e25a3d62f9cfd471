// Reads the ledgers of a run directory: one life an attempt, in order. For reports, and for planners that
// learn from earlier lives; recovery never uses it.
//
// A ledger is best effort and may hold any bytes. The reader skips and counts a torn, foreign or nonsensical
// line, and one over kLongestLedgerLine. It reads at most kMostLedgerRecords of one kind, and of a file over
// kLongestLedger bytes the beginning and the end. Times are "up" times, since the attempt's Checkpointer was
// made, because wall clocks jump. The wall time of the start is for people, and to compare lives. A time over
// a year counts as nonsense, and so does a wall time before 1970 or after 2255.
//
// Errors: IoError if a directory or a ledger cannot be read. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/interruption/source.h"
#include "holdfast/io/file_system.h"
#include "holdfast/planning/interval_planner.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::size_t kLongestLedgerLine = 64 << 10;
inline constexpr std::uint64_t kLongestLedger = 256 << 20;
inline constexpr std::size_t kMostLedgerRecords = 1 << 20;

struct LedgerCommit {
  std::int64_t step = 0;
  Duration up{};        // when it was acknowledged
  Duration boundary{};  // when training stood at that step
  Duration took{};      // write and commit
  std::uint64_t bytes = 0;
  Duration blocked{};  // how long training waited for it
};

// How long a notice of the kind "at-risk" counts: a run halves its save interval meanwhile.
inline constexpr Duration kRiskLasts = std::chrono::minutes(30);

struct LedgerNotice {
  Duration up{};    // when it was first seen
  WallTime when{};  // the same, by the wall clock
  std::string source;
  std::string kind;  // such as "deadline"; docs/operations.md#the-ledger lists all
  std::string text;
  std::optional<Duration> left;  // from `up` to its deadline
  bool hibernates = false;
};

struct LedgerPause {
  Duration from{};
  std::optional<Duration> to;  // nullopt: it lasted until the end
};

struct LedgerStall {
  Duration up{};
  Duration took{};
  std::string what;
};

// The step that training had reached at a moment.
struct LedgerMark {
  Duration up{};
  std::int64_t step = 0;
  Duration waited{};  // for saves, up to then
};

struct LedgerLast {
  Duration up{};
  std::string phase;
  std::string reason;
  std::int64_t exit_code = 0;
  Duration ending{};     // duration of finish(): its last save, and the wait for it
  Duration most_risk{};  // maximum of the work at risk
};

struct HOLDFAST_EXPORT LedgerLife {
  AttemptNumber attempt = 0;
  bool started = false;  // training began; if false, the fields up to `marks` have no meaning
  WallTime start{};
  Duration start_up{};  // "up" time at which training began
  std::int64_t start_step = 0;
  AttemptNumber from_attempt = 0;  // whose checkpoint it started from; 0: a fresh start
  std::string host;
  std::string boot;
  Duration startup{};  // from program start to the start of training

  std::vector<LedgerMark> marks;      // neither time nor step ever falls; the start is the first
  std::vector<LedgerCommit> commits;  // this and the following keep the order of the file
  std::vector<LedgerNotice> notices;
  std::vector<LedgerPause> pauses;
  std::vector<LedgerStall> stalls;
  std::optional<LedgerLast> end;
  Duration last_up{};                 // the end, or the last sign of life
  std::optional<WallTime> last_wall;  // the newest that a line tells
  WallTime last_sign{};               // that of the last line; a clock may have been set back before it
  std::int64_t last_step = 0;
  std::int64_t durable_step = -1;  // the newest of its own commits; -1: none
  std::map<std::string, SourceFigures> sources;
  std::int64_t lost_lines = 0;     // dropped lines that the ledger reports
  std::int64_t skipped_lines = 0;  // lines that the reader did not understand

  // Known lifetime, from program start.
  Duration length() const { return startup + (last_up - start_up); }
  // Time spent on steps until training first reached `step`, without start-up, waits for saves and pauses.
  // Between two marks all steps count as equally long.
  Duration work_until(std::int64_t step) const;
  Duration paused_until(Duration up) const;
  // True if it waits for the end of its machine.
  bool paused() const { return !pauses.empty() && !pauses.back().to; }
};

// Sum of two times, at most a century: a ledger may claim any times, and a plain sum could overflow.
HOLDFAST_EXPORT Duration bounded_sum(Duration a, Duration b);

// For readers that want the start and the newest: minutes of the fastest training. Whole ledgers grow by 16
// bytes a step.
inline constexpr std::uint64_t kLedgerEnds = 2 << 20;

// Parses one ledger. Its content never causes an exception. Of a file longer than `most` bytes it reads the
// first and the last `most`/2; it then has no commits of the first part.
HOLDFAST_EXPORT LedgerLife read_life(AttemptNumber attempt, const File& ledger,
                                     std::uint64_t most = kLongestLedger);
// The life of one attempt; nothing but its number if it has no ledger.
HOLDFAST_EXPORT LedgerLife read_life(AttemptNumber attempt, Directory& run_directory,
                                     std::uint64_t most = kLongestLedger);
// The lives of all attempts that have a ledger, oldest first.
HOLDFAST_EXPORT std::vector<LedgerLife> read_lives(Directory& run_directory,
                                                   std::uint64_t most = kLongestLedger);

// Joins consecutive attempts with one boot id into one machine life. A machine counts as ended if the next
// life ran on another machine, and the last life on it was interrupted or has no end line. The newest machine
// lives on if its boot id is `boot`, this machine's.
HOLDFAST_EXPORT std::vector<MachineLife> machine_lives(const std::vector<LedgerLife>& lives,
                                                       const std::string& boot);

}}  // namespace holdfast::v0_2
