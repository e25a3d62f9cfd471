// Which ends the notices in an attempt's ledger announce: of its machine, and of its own time.
//
// Errors: none. Threads: pure.
#pragma once

#include <optional>

#include "holdfast/base/clock.h"
#include "holdfast/ledger/ledger_reader.h"

namespace holdfast { inline namespace v0_2 {

// When the machine goes away. Notices about this process alone (a signal's grace period, a limit on its own
// time) do not count. nullopt: no such notice, or all were withdrawn.
std::optional<WallTime> machine_ends(const LedgerLife& life);

// True if the run's own time (max_wall, its Slurm job) is over: the run was told to stop for that; or that
// end is announced, the machine does not end before it, and the attempt `left` without being told to. False
// if that end passed more than a minute ago, because the job then got more time.
bool own_time_is_over(const LedgerLife& life, bool left, WallTime now);

}}  // namespace holdfast::v0_2
