// The second include, beside holdfast/holdfast.h, of a loop that several ranks run together: the process
// group, the exchange of gradients, sums over ranks, and decisions that ranks agree on.
//
// docs/several_gpus.md has the whole loop. Needs LibTorch with distributed support.
#pragma once

#include "holdfast/base/launch_environment.h"
#include "holdfast/distributed/agreement.h"
#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/found_inf.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/distributed/sum_over_ranks.h"
#include "holdfast/distributed/sync_batch_norm.h"
