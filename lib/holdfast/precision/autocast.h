// Autocast as a scope: convolutions and matrix products compute in 16 bits, losses and other operations that
// need range in FP32. LibTorch has a list of operations for each device type. Example:
//
//   at::Tensor loss;
//   {
//     const AutocastGuard autocast(precision, device.type());
//     loss = cross_entropy(net->forward(pictures), targets);
//   }
//   loss.backward();                       // outside: backward runs in the types that forward chose
//
// Threads: the setting belongs to the calling thread; destroy a guard on the thread that made it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "holdfast/base/export.h"
#include "holdfast/precision/precision.h"

namespace holdfast { inline namespace v0_2 {

// Scopes nest, also with different precisions and device types. Each restores what it found, also after an
// exception. fp32 and tf32 switch autocast off until the scope ends.
//
// LibTorch caches the cast weights until the outermost scope ends. So never keep a scope open over an
// optimizer's step: the next forward pass would compute with the old weights. Evaluate in a separate scope,
// because a weight that was cast without gradients would be cached too.
class HOLDFAST_EXPORT AutocastGuard {
 public:
  AutocastGuard(Precision precision, c10::DeviceType device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  bool open_ = false;  // the constructor changed a setting
  bool was_enabled_ = false;
  bool was_caching_ = false;
  c10::ScalarType was_type_ = c10::ScalarType::Float;
};

}}  // namespace holdfast::v0_2
