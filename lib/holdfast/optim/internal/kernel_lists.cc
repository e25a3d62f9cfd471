#include "holdfast/optim/internal/kernel_lists.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <dlfcn.h>

#include <algorithm>
#include <sstream>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::int64_t kWorthThreads = 32'768;  // elements; the limit of ATen's own loops

bool same_layout(const at::Tensor& left, const at::Tensor& right) {
  const auto sizes = left.sizes(), one = left.strides(), other = right.strides();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // The stride of a dimension of size 1 is never used.
    if (sizes[i] != 1 && one[i] != other[i]) return false;
  }
  return true;
}

template <class T>
std::string text_of(const T& value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

// From the OpenMP runtime that LibTorch has loaded. This setting belongs to the calling thread;
// at::set_num_threads changes the whole process.
using SetThreads = void (*)(int);
SetThreads openmp_set_threads() {
  static const auto found = reinterpret_cast<SetThreads>(::dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  return found;
}

}  // namespace

void require_usable(const char* optimizer, std::size_t group, std::size_t index, const at::Tensor& parameter,
                    const at::Tensor& gradient) {
  const auto refuse = [&](const std::string& what) {
    throw UsageError(std::string(optimizer) + ": parameter " + std::to_string(index) + " of group " +
                     std::to_string(group) + ", of shape " + text_of(parameter.sizes()) + ", " + what);
  };
  if (gradient.layout() != at::kStrided) {
    refuse(
        "has a sparse gradient, which the fused kernels do not read: make it dense (for an embedding, "
        "sparse(false)), or train it with torch::optim::SGD");
  }
  if (!at::isFloatingType(parameter.scalar_type())) {
    refuse("is of type " + std::string(at::toString(parameter.scalar_type())) +
           ", and the fused kernels compute real floating-point numbers only: use the optimizer of "
           "torch::optim");
  }
  if (gradient.scalar_type() != parameter.scalar_type() || gradient.device() != parameter.device()) {
    refuse("is " + std::string(at::toString(parameter.scalar_type())) + " on " + parameter.device().str() +
           ", its gradient " + at::toString(gradient.scalar_type()) + " on " + gradient.device().str() +
           ": they must be alike; after module.to(…) start with zero_grad()");
  }
  if (gradient.sizes() != parameter.sizes()) {
    refuse("has a gradient of shape " + text_of(gradient.sizes()) + ": zero_grad() forgets it");
  }
  if (parameter.is_meta() || parameter.device().is_ipu() || parameter.device().is_xla()) {
    refuse("is on " + parameter.device().str() +
           ", for which ATen has no fused kernels: use the optimizer of "
           "torch::optim");
  }
}

void require_slots(const char* optimizer, const at::Tensor& parameter, std::span<const at::Tensor> slots) {
  for (const at::Tensor& slot : slots) {
    if (!slot.defined() || (slot.sizes() == parameter.sizes() && slot.device() == parameter.device() &&
                            slot.scalar_type() == parameter.scalar_type())) {
      continue;
    }
    throw UsageError(std::string(optimizer) + ": the slots for a parameter of shape " +
                     text_of(parameter.sizes()) + " are of shape " + text_of(slot.sizes()) + ", " +
                     at::toString(slot.scalar_type()) + " on " + slot.device().str() + ", the parameter is " +
                     at::toString(parameter.scalar_type()) + " on " + parameter.device().str() +
                     ": move and convert the module before its optimizer has made an update");
  }
}

void KernelLists::clear(bool apart) {
  for (KernelList& list : lists()) {
    list.parameters.clear();
    list.gradients.clear();
    for (auto& slot : list.slots) slot.clear();
    list.steps.clear();
  }
  used_ = 0;
  apart_ = apart;
  back_.clear();
  copied_.clear();
}

KernelList& KernelLists::list_for(const at::Tensor& parameter, bool fresh) {
  const at::Device device = parameter.device();
  const at::ScalarType dtype = parameter.scalar_type();
  // One thread works on a list of small tensors (OneThread).
  const bool small = apart_ && device.is_cpu() && parameter.numel() < kWorthThreads;
  for (KernelList& list : lists()) {
    if (list.device == device && list.dtype == dtype && list.fresh == fresh && list.small == small)
      return list;
  }
  if (used_ == lists_.size()) lists_.push_back({device, dtype, fresh, small, {}, {}, {}, {}});
  KernelList& list = lists_[used_++];
  list.device = device;
  list.dtype = dtype;
  list.fresh = fresh;
  list.small = small;
  return list;
}

void KernelLists::add(const at::Tensor& parameter, const at::Tensor& gradient,
                      std::span<const at::Tensor> slots, const at::Tensor& step, bool fresh,
                      bool writes_gradient) {
  KernelList& list = list_for(parameter, fresh);
  // The kernels walk memory and not elements: all tensors of a row need the same layout without gaps.
  bool plain = parameter.is_non_overlapping_and_dense() && same_layout(parameter, gradient);
  for (const at::Tensor& slot : slots) {
    if (slot.defined()) plain = plain && same_layout(parameter, slot);
  }
  if (plain) {
    list.parameters.push_back(parameter);
    list.gradients.push_back(gradient);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].defined()) list.slots[i].push_back(slots[i]);
    }
  } else {
    const at::Tensor like = parameter.is_non_overlapping_and_dense() ? parameter : at::empty_like(parameter);
    const auto laid_out = [&](const at::Tensor& tensor, bool written) {
      if (tensor.is_non_overlapping_and_dense() && same_layout(like, tensor)) return tensor;
      at::Tensor copy = at::empty_strided(like.sizes(), like.strides(), like.options());
      copy.copy_(tensor);
      // What a kernel writes into a copy has to come back.
      if (written) back_.emplace_back(tensor, copy);
      return copy;
    };
    list.parameters.push_back(laid_out(parameter, true));
    // The version of the original has to be bumped, and the list holds only its copy.
    if (!list.parameters.back().is_same(parameter)) copied_.push_back(parameter);
    list.gradients.push_back(laid_out(gradient, writes_gradient));
    for (std::size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].defined()) list.slots[i].push_back(laid_out(slots[i], true));
    }
  }
  if (step.defined()) list.steps.push_back(step);
}

void KernelLists::finish() {
  for (auto& [to, from] : back_) to.copy_(from);
  // The fused kernels run below autograd and do not bump versions, so a stale backward pass would go
  // unnoticed.
  const auto changed = [](const at::Tensor& parameter) {
    // Inference tensors have no version.
    if (!parameter.is_inference()) parameter.unsafeGetTensorImpl()->bump_version();
  };
  for (const KernelList& list : lists()) {
    for (const at::Tensor& parameter : list.parameters) changed(parameter);
  }
  for (const at::Tensor& parameter : copied_) changed(parameter);
  clear();
}

OneThread::OneThread(bool really) {
  // Starting OpenMP's threads takes longer than such a list.
  if (!really || at::get_num_threads() <= 1 || openmp_set_threads() == nullptr) return;
  threads_ = at::get_num_threads();
  openmp_set_threads()(1);
}
OneThread::~OneThread() {
  if (threads_ > 0) openmp_set_threads()(threads_);
}

void require_scalar(const std::optional<at::Tensor>& tensor, const char* name) {
  if (tensor && (!tensor->defined() || tensor->numel() != 1 || tensor->scalar_type() != at::kFloat)) {
    throw UsageError(std::string(name) + " must be one number of type float (see optim/fused_step.h)");
  }
}

bool skipped_here(const std::optional<at::Tensor>& found_inf) {
  return found_inf && found_inf->device().is_cpu() && *found_inf->const_data_ptr<float>() != 0;
}

std::optional<at::Tensor> on_device(const std::optional<at::Tensor>& tensor, at::Device device) {
  // The usual case: no copy, so no thread waits.
  if (!tensor || tensor->device() == device) return tensor;
  return tensor->to(device);
}

std::optional<at::Tensor> found_on_device(const std::optional<at::Tensor>& found_inf, at::Device device) {
  const auto found = on_device(found_inf, device);
  if (!found) return found;
  return found->ne(0).to(at::kFloat);  // the kernels skip only if it is exactly 1
}

const at::Tensor& DeviceRates::of(std::size_t group, double rate, at::Device device) {
  for (Rate& known : rates_) {
    if (known.group != group || known.device != device) continue;
    put(known, rate);
    return known.tensor;
  }
  at::Tensor made = at::full({}, rate, at::TensorOptions().dtype(at::kFloat).device(device));
  return rates_.emplace_back(Rate{group, device, rate, std::move(made)}).tensor;
}

void DeviceRates::put(Rate& rate, double value) {
  // Nothing is written as long as the rate stays, so a constant rate costs no kernel.
  if (rate.value == value) return;
  rate.tensor.fill_(value);
  rate.value = value;
}

}}}  // namespace holdfast::v0_2::internal
