// Where the time of a run went, computed from its ledgers. Each part of an attempt's up time (from program
// start to its end or last sign of life) is one of these:
//
//   startup   until training began                 paused    training waited for the machine to end
//   kept      steps that count                     ending    the last save, and the exit
//   lost      steps to compute again               unknown   the rest: no line tells, such as after the last
//   waited    training waited for saves                      progress line
//
// A step counts if a later attempt continued after it, or, in the newest attempt, if it is durable.
// Goodput is kept time over up time. Time without a living process is not counted.
// Errors: none. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/ledger/ledger_reader.h"

namespace holdfast { inline namespace v0_2 {

enum class LifeEnding {
  complete,
  interrupted,  // it ended by itself, resumable
  failed,       // it ended by itself with another code
  superseded,   // the next attempt began while it lived
  crashed,      // no end line; the next attempt ran on the same boot of the same machine
  vanished,     // no end line; the next attempt ran on another machine
  silent,       // the newest attempt without an end line: it lives, or it ended without one
};
std::string word_of(LifeEnding ending);

struct TimeSplit {
  Duration up{};
  Duration startup{};
  Duration kept{};
  Duration lost{};
  Duration waited{};
  Duration paused{};
  Duration ending{};
  Duration unknown{};
};

struct LifeAccount {
  AttemptNumber attempt = 0;
  LifeEnding ending = LifeEnding::silent;
  std::int64_t exit_code = 0;
  std::string reason;
  WallTime began{};  // start of the process
  TimeSplit time;
  std::int64_t from_step = 0;
  std::int64_t last_step = 0;
  std::int64_t kept_step = 0;  // its steps up to this one count
  std::int64_t saves = 0;
  std::uint64_t bytes = 0;
  bool noticed = false;          // an interruption was announced and not withdrawn
  std::optional<Duration> lead;  // longest time from the first sight of a deadline to the deadline
  // Time before an announced deadline that no step used: in the pause, or after the exit.
  Duration unused_grace{};
  Duration blind{};  // of the source with the longest blind time
};

struct RunAccount {
  std::vector<LifeAccount> lives;  // attempts that reached training, oldest first
  std::int64_t never_started = 0;
  TimeSplit time;
  double goodput = 0;  // 0 to 1
  // Lives that ended because their machine ended: `interrupted` or `vanished`.
  std::int64_t interruptions = 0;
  std::int64_t missed = 0;  // of those: vanished without a notice
  Duration unused_grace{};
  // Work that the loss of the machine would cost now, as of the last line of the newest life.
  std::int64_t risk_steps = 0;
  Duration risk{};
  Duration most_risk{};  // maximum over the lives whose end line has it
  std::int64_t skipped_lines = 0;
  std::int64_t lost_lines = 0;
};

RunAccount account_for(const std::vector<LedgerLife>& lives);

}}  // namespace holdfast::v0_2
