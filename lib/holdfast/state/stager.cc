#include "holdfast/state/stager.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <cstring>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Bytes. Below this size, starting a second thread takes longer than the copy.
constexpr std::int64_t kGrain = 256 << 10;

bool aligned(const void* address, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(address) % unit == 0;
}

at::Tensor view_of(std::byte* bytes, const at::Tensor& like) {
  // A view without an owner: the image outlives it.
  return at::from_blob(bytes, like.sizes(), at::TensorOptions(like.scalar_type()));
}

}  // namespace

bool plain_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void Stager::add(const at::Tensor& from, std::span<std::byte> to) {
  // Sizes were planned from the same tensors, so a difference is a defect.
  if (to.size() != from.nbytes()) throw Error("a tensor and its place in the image differ in size");
  if (to.empty()) return;
  if (internal::in_cuda(from)) return cuda_.fetch(from, to);
  if (plain_memory(from)) {
    return copies_.add({static_cast<const std::byte*>(from.const_data_ptr()), to.size()}, to);
  }
  // In one go by ATen, which copies strided tensors faster than a loop over elements.
  const at::NoGradGuard no_grad;
  if (aligned(to.data(), from.element_size())) {
    view_of(to.data(), from).copy_(from);
  } else {  // files place small tensors at any offset, which ATen cannot address
    const at::Tensor packed = from.cpu().contiguous().resolve_conj().resolve_neg();
    std::memcpy(to.data(), packed.const_data_ptr(), to.size());
  }
}

void Stager::add(std::span<const std::byte> from, const at::Tensor& to) {
  if (from.size() != to.nbytes()) throw Error("a tensor and its place in the image differ in size");
  if (from.empty()) return;
  if (internal::in_cuda(to)) return cuda_.send(from, to);
  if (plain_memory(to))
    return copies_.add(from, {static_cast<std::byte*>(to.mutable_data_ptr()), from.size()});
  const at::NoGradGuard no_grad;
  if (aligned(from.data(), to.element_size())) {  // large tensors are aligned: ATen reads the file's bytes
                                                  // without a second copy
    to.copy_(view_of(const_cast<std::byte*>(from.data()), to));
    return;
  }
  const at::Tensor packed = at::empty(to.sizes(), at::TensorOptions(to.scalar_type()));
  std::memcpy(packed.mutable_data_ptr(), from.data(), from.size());
  to.copy_(packed);
}

void Stager::run() {
  // Divided by bytes and not by tensors, so that one huge weight uses all threads.
  at::parallel_for(0, static_cast<std::int64_t>(copies_.bytes()), kGrain,
                   [this](std::int64_t begin, std::int64_t end) {
                     copies_.copy(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end));
                   });
  // Host copies run first, while the devices' own copies are on their way.
  cuda_.wait();
}

}}  // namespace holdfast::v0_2
