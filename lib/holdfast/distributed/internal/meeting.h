// How ranks find each other. All connect to one store and say which rank they are; rank 0 tells them whether
// all are there. The store is in rank 0's process (store_server.h), at MASTER_ADDR, or on the loopback device
// if all ranks are on one host. Clients prove that they know the job's secret. torchrun's agent has its own
// TCPStore, without proofs.
//
// Keys, below "holdfast/<restart>/" and a hash of the secret: who (rank 0: the job), come/<r> (a count: two
// are an error), here/<r>, verdict (rank 0: "go", or the message that all ranks end with), read/<r>.
//
// Errors: UsageError and GroupError, as in process_group.h. Threads: one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "holdfast/base/launch_environment.h"
#include "holdfast/distributed/internal/store_line.h"

namespace holdfast { inline namespace v1 {

// "rank 3", "ranks 1, 3 and 7", "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 53 more".
std::string ranks_in_words(std::span<const int> ranks);
// "here/0" …, one for each rank.
std::vector<std::string> keys_of_ranks(const std::string& stem, int world_size);
// The inverse of keys_of_ranks().
std::vector<int> ranks_of_keys(std::span<const std::string> keys);
// The first line of an exception of c10d or Gloo, without its backtrace.
std::string brief(const std::exception& error);

// Returns when all ranks are there. If rank 0's store is still that of an earlier start, waits for the new
// one. The returned line heeds stop signals. `place` has more than one rank, except in tests.
StoreLine meet(const LaunchEnvironment& place, Duration limit);

// A second connection to the store of a finished meeting. Requires more than one rank.
c10::intrusive_ptr<c10d::Store> connect_again(const LaunchEnvironment& place, const StoreLine& line,
                                              Duration limit);

}}  // namespace holdfast::v1
