// How ranks find each other. All connect to one store and say which rank they are; rank 0 tells them whether
// all are there. The store is c10d's TCPStore, in rank 0's process or in that of torchrun's agent. Rank 0
// listens at MASTER_ADDR alone, or on the loopback device if all ranks are on one host. The store serves
// whoever reaches it.
//
// Keys are below "holdfast/" (ranks/attendance.h has them).
//
// Errors: UsageError and GroupError, as in process_group.h. Threads: one.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "holdfast/base/launch_environment.h"
#include "holdfast/ranks/store_line.h"

namespace holdfast { inline namespace v0_2 {

// The first line of an exception of c10d or Gloo, without its backtrace.
std::string brief(const std::exception& error);

// Returns when all ranks are there. If rank 0's store is still that of an earlier start, waits for the new
// one. The returned line heeds stop signals. `place` has more than one rank, except in tests.
StoreLine meet(const LaunchEnvironment& place, Duration limit);

// Another connection to the store of a finished meeting, with `limit` for each of its calls.
c10::intrusive_ptr<c10d::Store> connect_again(const LaunchEnvironment& place, const StoreLine& line,
                                              Duration limit);

}}  // namespace holdfast::v0_2
