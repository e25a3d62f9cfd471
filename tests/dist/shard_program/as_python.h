// The training that record_data_parallel.py recorded from Python's DistributedDataParallel: the same
// formulas.
//
// Threads: one.
#pragma once

#include <string>

#include "holdfast/distributed/process_group.h"

namespace holdfast::test {

// "worst DIFFERENCE DIGEST": how far the parameters end up from the recorded ones, and what they are.
std::string train_as_python(ProcessGroup& group);

}  // namespace holdfast::test
