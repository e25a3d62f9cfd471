// Whether all ranks of a start are here. All connect to one store and say which rank they are; rank 0 tells
// them whether all have come.
//
// Keys: who (rank 0: the job), come/<r> (a count: the number of its newest process), here (gathered: those
// numbers), twice (a process that waits has seen a newer one of its rank), verdict (rank 0: "go" and the
// numbers that are meant, or the message that all ranks end with), read (gathered). In a store of torchrun's
// agents they are below the number of the start, which rank 0 draws: starts (a count), knock/<world size>/<r>
// (a count: the ticket of the newest process), admit/<world size>/<r>/<ticket> (rank 0: that number).
//
// Errors: UsageError for another job at that port, or a rank that exists twice; GroupError if ranks are
// missing; SilentStore; StoppedWaiting. Threads: one.
#pragma once

#include <string>

#include "holdfast/base/export.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {

// "MASTER_ADDR:MASTER_PORT"
HOLDFAST_EXPORT std::string port_of(const LaunchEnvironment& place);

// Returns true when all ranks are here; the line has the keys of this start then. False: the ranks have met
// in this store before, or begin anew, and this rank belongs to the next start. `limit` is for the message.
HOLDFAST_EXPORT bool attend(const LaunchEnvironment& place, SteadyTime end, Duration limit, StoreLine& line);

}}  // namespace holdfast::v0_2
