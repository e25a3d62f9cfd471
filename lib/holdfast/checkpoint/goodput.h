// Where the time of a run went, from its ledgers. All of an attempt's up time, from the process's begin to
// its end or last sign of life, is one of these:
//
//   startup      until the training began
//   kept         steps that a later attempt went on from, or that are durable in the newest
//   lost         steps that had to be computed again, or would have to be
//   waited       the training waited for saves
//   paused       it waited for a machine to go away
//   ending       its last save, and leaving
//   unknown      between the last sign of life but one and the last, as far as nothing tells of it
//
// Goodput is kept over up time. Time in which no process lived belongs to nobody.
//
// Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/checkpoint/ledger_reader.h"

namespace holdfast::inline v1 {

enum class LifeEnding {
  complete,
  interrupted,  // it left by itself, resumable
  failed,       // it ended by itself with another code
  superseded,   // the next attempt began while it lived
  crashed,      // without a word, and the next attempt was on the same machine
  vanished,     // without a word, and the next attempt was on another machine
  silent,       // the newest: it lives, or has ended without a word
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
  WallTime began{};  // the process
  TimeSplit time;
  std::int64_t from_step = 0;
  std::int64_t last_step = 0;
  std::int64_t kept_step = 0;  // up to here its steps count
  std::int64_t saves = 0;
  std::uint64_t bytes = 0;
  bool noticed = false;          // an interruption was announced, and not withdrawn
  std::optional<Duration> lead;  // from the first sight of a deadline to it, the longest
  // Time before an announced deadline that no step used: paused, or after leaving.
  Duration unused_grace{};
  Duration blind{};  // of the source that was blind longest
};

struct RunAccount {
  std::vector<LifeAccount> lives;  // that came to training, oldest first
  std::int64_t never_started = 0;
  TimeSplit time;
  double goodput = 0;  // 0 … 1
  // Lives that ended because their machine went away: those that left in time, and those that vanished.
  std::int64_t interruptions = 0;
  std::int64_t missed = 0;  // of those: vanished without a notice
  Duration unused_grace{};
  // Of the newest life: what a machine that vanishes now would take, as of its last word.
  std::int64_t risk_steps = 0;
  Duration risk{};
  Duration most_risk{};  // of all lives that told it
  std::int64_t skipped_lines = 0;
  std::int64_t lost_lines = 0;
};

RunAccount account_for(const std::vector<LedgerLife>& lives);

}  // namespace holdfast::inline v1
