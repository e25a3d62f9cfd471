// One answer of all ranks to the question of a GradScaler, whether gradients overflowed: with an inf on one
// rank all leave the update out and halve the scale, or they would go separate ways from then on.
//
//   scaler.agree_by(holdfast::found_on_any_rank(group));
//
// Needed where ranks look at different gradients: at shares (sharded_optimizer.h), or at such as were not
// reduced. Averages over all ranks overflow on all of them alike (an inf of one is an inf, or a NaN, of the
// sum). Costs an all-reduce of one number in each unscale(), which is collective then; nobody waits for a
// device.
//
// Requires: group outlives the function. In a world of one it does nothing. Errors: GroupError when a partner
// is lost. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "holdfast/distributed/process_group.h"

namespace holdfast::inline v1 {

std::function<void(at::Tensor& found_inf)> found_on_any_rank(ProcessGroup& group);

}  // namespace holdfast::inline v1
