// One rank of the trainings that bench_data_parallel compares: the same model twice, by DataParallel and by a
// plain loop over c10d::Reducer, on this rank's half of the batch.
//
// Rank 0 is asked one line at a time on standard input, "ours 10" or "plain 10", tells the others by a
// broadcast, and answers with a line of JSON: {"seconds": s of the steps, "loss": that of the last one here}.
// All end with the end of rank 0's input.
//
// Errors: what Torch and the group throw. Threads: one thread.
#pragma once

#include "../step_time/job.h"

namespace holdfast::bench {

// `options`: of the batch of all ranks.
void serve_rank(const JobOptions& options);

}  // namespace holdfast::bench
