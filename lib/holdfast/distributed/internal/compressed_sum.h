// Sends gradients in 16 bits: rounded after the division by the number of ranks, summed as such, and widened
// again. As c10d's own FP16 hook, which knows no bfloat16.
//
// Threads: called by the Reducer, in the backward pass.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

namespace holdfast::inline v1 {

class CompressedSum : public c10d::CppCommHookInterface<c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  CompressedSum(const c10::intrusive_ptr<c10d::ProcessGroup>& group, c10::ScalarType type)
      : CppCommHookInterface(group), type_(type) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    const at::Tensor full = bucket.getBufferRef();
    std::vector<at::Tensor> sent{full.to(type_)};
    sent.front().div_(state_->getSize());
    const auto sum = state_->allreduce(sent)->getFuture();
    return sum->then(
        [full](c10::ivalue::Future& done) {
          full.copy_(done.value().toTensorVector().front());
          return c10::IValue(full);
        },
        sum->elementType());
  }

 private:
  c10::ScalarType type_;
};

}  // namespace holdfast::inline v1
