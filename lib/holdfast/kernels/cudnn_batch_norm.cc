#include "holdfast/base/error.h"
#include "holdfast/kernels/batch_norm.h"
#include "holdfast/kernels/internal/batch_norm_node.h"

#ifdef HOLDFAST_WITH_CUDA
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>

#include "holdfast/kernels/internal/cudnn.h"
#endif

namespace holdfast { inline namespace v0_2 {
namespace kernels { namespace {

#ifdef HOLDFAST_WITH_CUDA

using internal::BackwardCall;
using internal::BatchNormCall;
using internal::BatchNormGradients;
using internal::BatchNormResult;
using internal::check_cudnn;
using internal::cudnn;

class Descriptors {
 public:
  Descriptors(const at::Tensor& like, bool add, bool with_relu)
      : fusion(!with_relu ? internal::kCudnnBn
               : add      ? internal::kCudnnBnAddRelu
                          : internal::kCudnnBnRelu) {
    check_cudnn(cudnn().create_tensor(&x), "a descriptor");
    check_cudnn(cudnn().create_tensor(&parameters), "a descriptor");
    check_cudnn(cudnn().create_activation(&relu_), "a descriptor");
    const auto size = [&](int dim) { return static_cast<int>(like.size(dim)); };
    check_cudnn(
        cudnn().set_tensor(x, internal::kCudnnNhwc, internal::kCudnnHalf, size(0), size(1), size(2), size(3)),
        "the activations' shape");
    check_cudnn(cudnn().derive_parameters(parameters, x, internal::kCudnnPersistent),
                "the parameters' shape");
    check_cudnn(cudnn().set_activation(relu_, internal::kCudnnRelu, internal::kCudnnPropagateNan, 0),
                "a ReLU");
    // Only what the fusion uses; the rest stays null. Backward reads y for the state of the ReLU alone.
    if (with_relu) relu = relu_;
    if (add) z = x;
    if (with_relu) y = x;
  }
  ~Descriptors() {
    cudnn().destroy_tensor(x);
    cudnn().destroy_tensor(parameters);
    cudnn().destroy_activation(relu_);
  }
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;

  int fusion;
  internal::CudnnTensor x = nullptr;  // describes all activations and their gradients
  internal::CudnnTensor parameters = nullptr;
  internal::CudnnTensor z = nullptr, y = nullptr;  // equal to x, or null if unused
  internal::CudnnActivation relu = nullptr;

 private:
  internal::CudnnActivation relu_ = nullptr;
};

at::Tensor bytes(std::size_t count, const at::Tensor& like) {
  return at::empty({static_cast<std::int64_t>(count)}, at::TensorOptions(like.device()).dtype(at::kByte));
}

const void* in(const at::Tensor& tensor) { return tensor.defined() ? tensor.const_data_ptr() : nullptr; }
void* out(const at::Tensor& tensor) { return tensor.defined() ? tensor.mutable_data_ptr() : nullptr; }

// cuDNN's fused calls work in this mode alone, over NHWC in half precision.
constexpr int kMode = internal::kCudnnPersistent;
// cuDNN blends results into what is there: these factors replace it.
constexpr float kOne = 1, kZero = 0;

struct CudnnCalls {
  static BatchNormResult forward(const BatchNormCall& call) {
    const c10::cuda::CUDAGuard guard(call.x.device());
    const auto handle = internal::cudnn_handle();
    const Descriptors of(call.x, call.add.defined(), call.relu);
    std::size_t work = 0;
    std::size_t reserve = 0;
    check_cudnn(
        cudnn().forward_workspace(handle, kMode, of.fusion, of.x, of.z, of.x, of.parameters, of.relu, &work),
        "its memory");
    check_cudnn(cudnn().reserve_space(handle, kMode, of.fusion, of.relu, of.x, &reserve), "its memory");
    const BatchNormParameters& norm = call.norm;
    // The reserve space (mask) carries the state of the ReLU to backward, so nobody may change it in between.
    BatchNormResult result{.y = at::empty_like(call.x, call.x.options(), at::MemoryFormat::ChannelsLast),
                           .kept_y = {},
                           .statistics = at::empty({2, call.x.size(1)}, norm.weight.options()),
                           .mask = bytes(reserve, call.x)};
    // Freed when this returns, before the kernels have run: the caching allocator gives it to later work of
    // the same stream only.
    const at::Tensor workspace = bytes(work, call.x);
    check_cudnn(
        cudnn().forward(handle, kMode, of.fusion, &kOne, &kZero, of.x, in(call.x), of.z, in(call.add), of.x,
                        out(result.y), of.parameters, in(norm.weight), in(norm.bias), norm.momentum,
                        out(norm.running_mean), out(norm.running_var), norm.eps, out(result.statistics[0]),
                        out(result.statistics[1]), of.relu, out(workspace), work, out(result.mask), reserve),
        "forward");
    if (call.relu) result.kept_y = result.y;
    return result;
  }

  static BatchNormGradients backward(const BackwardCall& call) {
    const c10::cuda::CUDAGuard guard(call.x.device());
    const auto handle = internal::cudnn_handle();
    const Descriptors of(call.x, call.added, call.relu);
    // cuDNN takes one gradient, so those of the two paths are added by an operator before.
    const at::Tensor gradient =
        call.gradient2.defined() ? at::add(call.gradient, call.gradient2) : call.gradient;
    BatchNormGradients found{.x = at::empty_like(call.x, call.x.options(), at::MemoryFormat::ChannelsLast),
                             .add = {},
                             .weight = at::empty_like(call.weight),
                             .bias = at::empty_like(call.bias)};
    if (call.added) found.add = at::empty_like(found.x);
    std::size_t work = 0;
    check_cudnn(cudnn().backward_workspace(handle, kMode, of.fusion, of.x, of.y, of.x, of.z, of.x,
                                           of.parameters, of.relu, &work),
                "its memory");
    const at::Tensor workspace = bytes(work, call.x);
    const at::Tensor& reserve = call.forward.mask;
    check_cudnn(cudnn().backward(handle, kMode, of.fusion, &kOne, &kZero, &kOne, &kZero, of.x, in(call.x),
                                 of.y, in(call.forward.kept_y), of.x, in(gradient), of.z, out(found.add),
                                 of.x, out(found.x), of.parameters, in(call.weight), in(call.bias),
                                 out(found.weight), out(found.bias), call.eps, in(call.forward.statistics[0]),
                                 in(call.forward.statistics[1]), of.relu, out(workspace), work, out(reserve),
                                 static_cast<std::size_t>(reserve.numel())),
                "backward");
    return found;
  }
};
#endif

}}  // namespace kernels

Activation cudnn_batch_norm(const at::Tensor& x, const BatchNormParameters& parameters,
                            const BatchNormFusion& fusion) {
  // An empty batch, as count_work() of the models makes it, only asks for shapes.
  if (x.numel() == 0) return kernels::internal::by_operators(x, parameters, fusion);
  if (!x.is_cuda()) {
    throw UsageError("BatchNormKind::cudnn is for CUDA devices, not " + x.device().str() +
                     ": choose fused or aten (--bn in Holdfast's example)");
  }
  kernels::internal::require_fused_shape(x, parameters, fusion);
  // cuDNN fuses only the training pass.
  if (!parameters.training) return kernels::internal::by_operators(x, parameters, fusion);
  if (x.scalar_type() != at::kHalf) {
    throw UsageError(
        std::string("BatchNormKind::cudnn is for FP16, not ") + c10::toString(x.scalar_type()) +
        ": choose fused or aten, or compute in FP16 (--bn, --precision fp16 in Holdfast's example)");
  }
#ifdef HOLDFAST_WITH_CUDA
  if (fusion.add && !fusion.relu) {  // cuDNN does not fuse this combination
    const at::Tensor y = at::add(cudnn_batch_norm(x, parameters).main, *fusion.add);
    return {y, y};
  }
  return kernels::internal::BatchNormNode<kernels::CudnnCalls>::run(x, parameters, fusion);
#else
  throw UsageError("BatchNormKind::cudnn: built without CUDA (HOLDFAST_CUDA)");
#endif
}

}}  // namespace holdfast::v0_2
