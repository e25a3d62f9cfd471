// One rank of the trainings that bench_data_parallel compares. It trains the same model twice, with
// DataParallel and with a plain loop over c10d::Reducer, on this rank's half of the batch.
//
// Rank 0 reads lines from standard input, "ours 10" or "plain 10", and broadcasts them to the others. It
// answers with a line of JSON: {"seconds": of the steps, "loss": of the last step here}. All end when rank
// 0's input ends.
//
// Errors: those of torch and the group. Threads: one thread.
#pragma once

#include "../step_time/job.h"

namespace holdfast::bench {

// `options`: of the batch of all ranks.
void serve_rank(const JobOptions& options);

}  // namespace holdfast::bench
