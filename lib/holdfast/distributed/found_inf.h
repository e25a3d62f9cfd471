// Makes all ranks agree whether gradients overflowed. An inf on one rank then skips the update and halves the
// scale on all ranks; otherwise their weights would diverge.
//
//   scaler.agree_by(holdfast::found_on_any_rank(group));
//
// Needed if ranks look at different gradients: at shares (sharded_optimizer.h), or at gradients that were not
// reduced. Averages over all ranks overflow on all ranks. Costs an all-reduce of one number in each
// unscale(), which becomes collective. No thread waits for a device.
//
// Requires: group outlives the function. Errors: GroupError for a lost rank. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { inline namespace v0_2 {

// Does nothing in a world of one.
HOLDFAST_EXPORT std::function<void(at::Tensor& found_inf)> found_on_any_rank(ProcessGroup& group);

}}  // namespace holdfast::v0_2
