#include "holdfast/kernels/internal/cudnn.h"

#ifdef HOLDFAST_WITH_CUDA

#include <dlfcn.h>

#include <string>

#include "holdfast/base/error.h"

// Declared here because LibTorch's header of it includes cuDNN's own.
namespace at::native {
cudnnContext* getCudnnHandle();
}

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {
namespace {

template <class Function>
void find_cudnn(Function*& function, const char* name) {
  // RTLD_NOLOAD: only the cuDNN that libtorch_cuda has loaded, never a second one.
  static void* const library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD);
  // A LibTorch that brings cuDNN under another name has it among the loaded libraries all the same.
  function = reinterpret_cast<Function*>(dlsym(library != nullptr ? library : RTLD_DEFAULT, name));
  if (function == nullptr) {
    throw UsageError(std::string("BatchNormKind::cudnn: this LibTorch's cuDNN has no ") + name +
                     "; choose BatchNormKind::fused or aten (--bn in Holdfast's example)");
  }
}

Cudnn load_cudnn() {
  Cudnn found{};
  find_cudnn(found.error_string, "cudnnGetErrorString");
  find_cudnn(found.create_tensor, "cudnnCreateTensorDescriptor");
  find_cudnn(found.destroy_tensor, "cudnnDestroyTensorDescriptor");
  find_cudnn(found.set_tensor, "cudnnSetTensor4dDescriptor");
  find_cudnn(found.derive_parameters, "cudnnDeriveBNTensorDescriptor");
  find_cudnn(found.create_activation, "cudnnCreateActivationDescriptor");
  find_cudnn(found.destroy_activation, "cudnnDestroyActivationDescriptor");
  find_cudnn(found.set_activation, "cudnnSetActivationDescriptor");
  find_cudnn(found.forward_workspace, "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize");
  find_cudnn(found.reserve_space, "cudnnGetBatchNormalizationTrainingExReserveSpaceSize");
  find_cudnn(found.forward, "cudnnBatchNormalizationForwardTrainingEx");
  find_cudnn(found.backward_workspace, "cudnnGetBatchNormalizationBackwardExWorkspaceSize");
  find_cudnn(found.backward, "cudnnBatchNormalizationBackwardEx");
  return found;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn found = load_cudnn();
  return found;
}

CudnnHandle cudnn_handle() { return at::native::getCudnnHandle(); }

void check_cudnn(Cudnn::Status status, const char* what) {
  if (status == 0) return;
  // The user's way out is in the message, because the library may differ from machine to machine.
  throw Error(std::string("cuDNN's batch norm, ") + what + ": " + cudnn().error_string(status) +
              " (BatchNormKind::fused and aten do without it; --bn in Holdfast's example)");
}

}}}  // namespace holdfast::v0_2::kernels::internal

#endif
