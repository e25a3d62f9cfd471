// Autocast as a scope: convolutions and products compute in 16 bits, what needs range (losses above all) in
// FP32; LibTorch has a list for each device type.
//
//   at::Tensor loss;
//   {
//     const AutocastGuard autocast(precision, device.type());
//     loss = cross_entropy(net->forward(pictures), targets);
//   }
//   loss.backward();                       // outside: backward runs in the types that forward chose
//
// fp32 and tf32 open a scope without autocast: nothing happens where none is on, and inside another guard it
// is off until the scope ends. Scopes nest, also of different precisions and device types; each restores what
// it found, also when an exception leaves it. Weights are cast once and kept until the outermost scope ends:
// a scope must not stay open over an optimizer's step, or the next forward computes with the old weights.
// Evaluate in a scope of its own: a weight cast without gradients would be kept, too.
//
// Threads: the setting belongs to the calling thread; a guard ends on the thread that made it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "holdfast/precision/precision.h"

namespace holdfast::inline v1 {

class AutocastGuard {
 public:
  AutocastGuard(Precision precision, c10::DeviceType device);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  bool open_ = false;  // something was changed
  bool was_enabled_ = false;
  bool was_caching_ = false;
  c10::ScalarType was_type_ = c10::ScalarType::Float;
};

}  // namespace holdfast::inline v1
