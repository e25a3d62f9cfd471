// Casts the FP32 weights of a module's convolutions and linear layers to 16 bits with one kernel, and their
// gradients back with another. Autocast alone launches one for each tensor: 108 in ResNet-50.
//
//   const CastTogether casts(*net);
//   const AutocastGuard autocast(Precision::fp16, at::kCUDA);
//   const CastTogether::Scope cast(casts, at::kHalf);      // until the end of the forward pass
//
// Values and gradients have autocast's bits. Gradients reach the parameters together, at the end of backward.
// Requires: these layers run under autocast, and are neither added nor removed; module.to() is fine. Nothing
// else reads their `weight` and `bias` in that scope: they are 16-bit there (module.parameters() are not).
// The module outlives this object. Errors: UsageError for second derivatives. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::nn {
class Module;
}

namespace holdfast { inline namespace v0_2 {

class CastTogether {
 public:
  explicit CastTogether(torch::nn::Module& module);

  // While it lives, the layers have 16-bit weights in place of their parameters. Trained FP32 weights only:
  // autocast casts the others.
  class [[nodiscard]] Scope {
   public:
    Scope(const CastTogether& casts, at::ScalarType type);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct Replaced {
      at::Tensor* place;
      at::Tensor parameter;
    };
    std::vector<Replaced> replaced_;
  };

 private:
  std::vector<at::Tensor*> places_;  // members `weight` and `bias` of the layers
};

}}  // namespace holdfast::v0_2
