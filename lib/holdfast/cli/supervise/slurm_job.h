// The Slurm batch job that this process runs in, and how `supervise --requeue-slurm` puts it back into its
// queue.
//
// The job is asked for its state first. A running job, or one that was preempted or reached its time limit,
// is requeued. A job that somebody cancelled is not: its cancellation would not last. A job that Slurm itself
// requeues needs no second request.
//
// Errors: UsageError outside a Slurm job; a failed request is `false`. Threads: the one that made the inbox.
#pragma once

#include <string>

#include "holdfast/base/hook_context.h"
#include "holdfast/cli/child/attended_child.h"

namespace holdfast { inline namespace v0_2 {

struct SlurmJob {
  // "1234", or "1230_4" in an array: the bare number of an array's first job names the whole array.
  std::string name;
};

// From SLURM_JOB_ID, SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID.
SlurmJob this_slurm_job();

// Tries for 20 s: at a time limit, Slurm kills the job after KillWait (30 s). False, and logged: Slurm did
// not answer, or refused. True says nothing about a job that was cancelled.
bool requeue(const SlurmJob& job, const HookContext& context, SignalInbox& inbox);

}}  // namespace holdfast::v0_2
