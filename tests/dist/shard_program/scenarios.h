// What one rank does, and says of it in lines: the tests compare them.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "holdfast/distributed/process_group.h"

namespace holdfast::test {

using Lines = std::vector<std::string>;

// sharded.cc
Lines equals_whole(ProcessGroup& group);  // parameters, slots and memory, for each optimizer
Lines other_worlds(ProcessGroup& group);  // saved by this world, loaded by a world of one, and back
Lines resumes(ProcessGroup& group);       // interrupted and not, in one world
Lines clips(ProcessGroup& group);         // a norm over all ranks
Lines overflows(ProcessGroup& group);     // an inf on one rank, agreed on and not
// sync_batch_norm.cc
Lines normalizes(ProcessGroup& group);  // against one process with the whole batch

// device.cc: rank 1 dies while collectives are under way on a GPU; the others wait for the device, and come
// back from it or not. Returns never.
int hangs_on_device(bool returns);

}  // namespace holdfast::test
