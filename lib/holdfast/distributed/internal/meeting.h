// How ranks find each other. All connect to one store and say which rank they are; rank 0 tells them whether
// all are there. The store is in rank 0's process (store_server.h), at MASTER_ADDR, or on the loopback device
// if all ranks are on one host. Clients prove that they know the job's secret. torchrun's agent has its own
// TCPStore, without proofs.
//
// Keys are below "holdfast/" and a hash of the secret (ranks/attendance.h has them).
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

// A second connection to the store of a finished meeting. Requires more than one rank.
std::shared_ptr<RankStore> connect_again(const LaunchEnvironment& place, const StoreLine& line,
                                         Duration limit);

// The line's store for Gloo and NCCL, over the same connection.
c10::intrusive_ptr<c10d::Store> c10d_store_of(const StoreLine& line, Duration limit);

}}  // namespace holdfast::v0_2
