// What the ledgers of a run directory tell (ledger.h): one life an attempt, in order. For reports and for
// whoever learns from earlier lives; decides nothing about recovery.
//
// Ledgers are best effort and may hold anything. A torn, foreign or nonsensical line is skipped and counted;
// so is a line over kLongestLine, and what is over kLongestLedger bytes of a file or kMostRecords of one kind
// is not read. Times are told as time since the attempt's Checkpointer was made ("up"), because wall clocks
// jump; the wall time of the start is for people, and for setting lives side by side. A time over a year is
// nonsense, and so is a wall time before 1970 or after 2255.
//
// Errors: IoError where a directory or a ledger cannot be read. Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/checkpoint/interval_planner.h"
#include "holdfast/interruption/source.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

inline constexpr std::size_t kLongestLedgerLine = 64 << 10;
inline constexpr std::uint64_t kLongestLedger = 256 << 20;
inline constexpr std::size_t kMostLedgerRecords = 1 << 20;

struct LedgerCommit {
  std::int64_t step = 0;
  Duration up{};        // acknowledged
  Duration boundary{};  // the training stood at that step ("up")
  Duration took{};      // written and committed
  std::uint64_t bytes = 0;
  Duration blocked{};  // the training waited for it
};

struct LedgerNotice {
  Duration up{};  // first sight
  std::string source;
  std::string kind;  // "deadline", as ledger.h says
  std::string text;
  std::optional<Duration> left;  // to its deadline, then
  bool hibernates = false;
};

struct LedgerPause {
  Duration from{};
  std::optional<Duration> to;  // nullopt: until the end
};

struct LedgerStall {
  Duration up{};
  Duration took{};
  std::string what;
};

// Where the training was at a moment.
struct LedgerMark {
  Duration up{};
  std::int64_t step = 0;
  Duration waited{};  // for saves, so far
};

struct LedgerLast {
  Duration up{};
  std::string phase;
  std::string reason;
  std::int64_t exit_code = 0;
  Duration ending{};     // finish(): its last save, and the wait for it
  Duration most_risk{};  // the most work that was ever at risk
};

struct LedgerLife {
  AttemptNumber attempt = 0;
  bool started = false;  // it came to training; otherwise the fields until `marks` say nothing
  WallTime start{};
  Duration start_up{};
  std::int64_t start_step = 0;
  AttemptNumber from_attempt = 0;
  std::string host;
  std::string boot;
  Duration startup{};  // from the process's begin to the start of training

  std::vector<LedgerMark> marks;      // by time and step, both never falling; the start is the first
  std::vector<LedgerCommit> commits;  // in the order of the file, as all that follows
  std::vector<LedgerNotice> notices;
  std::vector<LedgerPause> pauses;
  std::vector<LedgerStall> stalls;
  std::optional<LedgerLast> end;
  Duration last_up{};  // the end, or the last sign of life
  std::int64_t last_step = 0;
  std::int64_t durable_step = -1;  // the newest of its own commits; -1: none
  std::map<std::string, SourceFigures> sources;
  std::int64_t lost_lines = 0;     // by the ledger's own word
  std::int64_t skipped_lines = 0;  // not understood

  // How long it is known to have lived, from the process's begin.
  Duration length() const { return startup + (last_up - start_up); }
  // The time that went into steps until the training first stood at that step: without start-up, waits for
  // saves and pauses. Between two marks steps are taken to be equally long.
  Duration work_until(std::int64_t step) const;
  Duration paused_until(Duration up) const;
};

// Of times that are not negative, and at most a century: what a ledger says may add up to anything.
Duration bounded_sum(Duration a, Duration b);

// A ledger's text. Never throws for what is in it.
LedgerLife read_life(AttemptNumber attempt, const File& ledger);
// All that have a ledger, oldest first.
std::vector<LedgerLife> read_lives(Directory& run_directory);

// The same machine's lives are one: attempts that follow one another with one boot id. A machine ended when
// the next life is on another one and the last on it was interrupted, or fell silent.
struct MachineHistory {
  std::vector<MachineLife> before;  // without the machine of `boot`, where that is the newest
  Duration age{};                   // of that one
};
MachineHistory machine_history(const std::vector<LedgerLife>& lives, const std::string& boot);

}  // namespace holdfast::inline v1
