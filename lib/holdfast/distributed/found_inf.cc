#include "holdfast/distributed/found_inf.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace holdfast { inline namespace v0_2 {

std::function<void(at::Tensor& found_inf)> found_on_any_rank(ProcessGroup& group) {
  return [&group](at::Tensor& found_inf) {
    if (group.alone()) return;
    group.guard("found_inf", [&] {
      std::vector<at::Tensor> found{found_inf};
      c10d::AllreduceOptions options;
      // One overflow on any rank skips the update on all; otherwise the weights would drift apart.
      options.reduceOp = c10d::ReduceOp::MAX;
      // With NCCL wait() only orders streams, so no thread waits for a device.
      group.c10d()->allreduce(found, options)->wait();
    });
  };
}

}}  // namespace holdfast::v0_2
