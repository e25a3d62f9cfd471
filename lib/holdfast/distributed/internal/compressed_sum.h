// Sends gradients in 16 bits: divides by the number of ranks, rounds, sums, and widens again. Like c10d's
// FP16 hook, which has no bfloat16.
//
// Threads: the Reducer calls it in the backward pass.
#pragma once

#include <torch/csrc/distributed/c10d/comm.hpp>
#include <vector>

namespace holdfast { inline namespace v0_2 {

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

}}  // namespace holdfast::v0_2
