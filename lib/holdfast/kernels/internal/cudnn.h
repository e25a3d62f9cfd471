// The cuDNN calls of a fused batch norm, found in the library that LibTorch has loaded. cuDNN's headers are
// not needed; LibTorch's wheel does not have them. Types and values are those of cuDNN 8 and 9.
//
// Errors: UsageError if LibTorch has no cuDNN or cuDNN lacks the calls. Threads: any.
#pragma once

#ifdef HOLDFAST_WITH_CUDA

#include <cstddef>
struct cudnnContext;
struct cudnnTensorStruct;
struct cudnnActivationStruct;

namespace holdfast { inline namespace v0_2 { namespace kernels::internal {

using CudnnHandle = cudnnContext*;
using CudnnTensor = cudnnTensorStruct*;
using CudnnActivation = cudnnActivationStruct*;

inline constexpr int kCudnnNhwc = 1, kCudnnHalf = 2, kCudnnRelu = 1, kCudnnPropagateNan = 1;
inline constexpr int kCudnnPersistent = 2;  // CUDNN_BATCHNORM_SPATIAL_PERSISTENT
enum CudnnFusion : int { kCudnnBn = 0, kCudnnBnRelu = 1, kCudnnBnAddRelu = 2 };

struct Cudnn {
  using Status = int;  // 0: success

  const char* (*error_string)(Status);
  Status (*create_tensor)(CudnnTensor*);
  Status (*destroy_tensor)(CudnnTensor);
  Status (*set_tensor)(CudnnTensor, int format, int type, int n, int c, int h, int w);
  Status (*derive_parameters)(CudnnTensor, CudnnTensor x, int mode);
  Status (*create_activation)(CudnnActivation*);
  Status (*destroy_activation)(CudnnActivation);
  Status (*set_activation)(CudnnActivation, int mode, int nan, double coefficient);
  Status (*forward_workspace)(CudnnHandle, int mode, int fusion, CudnnTensor x, CudnnTensor z, CudnnTensor y,
                              CudnnTensor parameters, CudnnActivation, std::size_t*);
  Status (*reserve_space)(CudnnHandle, int mode, int fusion, CudnnActivation, CudnnTensor x, std::size_t*);
  Status (*forward)(CudnnHandle, int mode, int fusion, const void* alpha, const void* beta, CudnnTensor x,
                    const void*, CudnnTensor z, const void*, CudnnTensor y, void*, CudnnTensor parameters,
                    const void* scale, const void* bias, double momentum, void* running_mean,
                    void* running_variance, double eps, void* mean, void* deviation, CudnnActivation,
                    void* workspace, std::size_t, void* reserve, std::size_t);
  Status (*backward_workspace)(CudnnHandle, int mode, int fusion, CudnnTensor x, CudnnTensor y,
                               CudnnTensor dy, CudnnTensor dz, CudnnTensor dx, CudnnTensor parameters,
                               CudnnActivation, std::size_t*);
  Status (*backward)(CudnnHandle, int mode, int fusion, const void* alpha, const void* beta,
                     const void* parameter_alpha, const void* parameter_beta, CudnnTensor x, const void*,
                     CudnnTensor y, const void*, CudnnTensor dy, const void*, CudnnTensor dz, void*,
                     CudnnTensor dx, void*, CudnnTensor parameters, const void* scale, const void* bias,
                     void* dscale, void* dbias, double eps, const void* mean, const void* deviation,
                     CudnnActivation, void* workspace, std::size_t, void* reserve, std::size_t);
};

const Cudnn& cudnn();
// LibTorch's cuDNN handle of this thread, on its current stream.
CudnnHandle cudnn_handle();
// Throws Error with cuDNN's message unless `status` is 0.
void check_cudnn(Cudnn::Status status, const char* what);

}}}  // namespace holdfast::v0_2::kernels::internal

#endif
