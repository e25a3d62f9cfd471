#include "holdfast/train/late_results.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <thread>

namespace holdfast { inline namespace v0_2 {
namespace {

// Short beside a step, long beside a system call.
constexpr std::chrono::microseconds kPoll{20};

template <class T>
double element(const at::Tensor& tensor, std::int64_t i) {
  return static_cast<double>(tensor.const_data_ptr<T>()[i]);
}

// Without an operator: item() would be one, and on a device it would drain the stream.
double value_of(const at::Tensor& tensor, std::int64_t i) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return element<float>(tensor, i);
    case at::kHalf:
      return element<at::Half>(tensor, i);
    case at::kBFloat16:
      return element<at::BFloat16>(tensor, i);
    default:
      return element<double>(tensor, i);
  }
}

}  // namespace

void LateResults::begin(const std::vector<at::Tensor>& scalars) {
  values_.clear();
  on_their_way_ = false;
  const at::Device device = scalars.front().device();
  if (device.is_cpu()) {
    // On a CPU the values are there already.
    for (const at::Tensor& scalar : scalars) values_.push_back(value_of(scalar.cpu(), 0));
    return;
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gathered;
  gathered.reserve(scalars.size());
  for (const at::Tensor& scalar : scalars) {
    gathered.push_back(scalar.detach().reshape({1}).to(device, /*non_blocking=*/true));
  }
  // All numbers in one copy: each copy by itself would cost a launch.
  // cat() promotes all numbers to the widest type among them, which loses no bit of any.
  const at::Tensor all = gathered.size() == 1 ? gathered.front() : at::cat(gathered);
  if (!host_.defined() || host_.scalar_type() != all.scalar_type() || host_.numel() != all.numel()) {
    // Pinned, because only then the copy runs without waiting.
    host_ = at::empty({all.numel()}, at::TensorOptions(all.scalar_type()).pinned_memory(true));
  }
  host_.copy_(all, /*non_blocking=*/true);
  if (!copied_) copied_.emplace(device.type());
  copied_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  on_their_way_ = true;
}

const std::vector<double>& LateResults::wait() {
  if (!on_their_way_) return values_;
  // Sleeps instead of spinning: the core belongs to the loader and the writer.
  while (!copied_->query()) std::this_thread::sleep_for(kPoll);
  for (std::int64_t i = 0; i < host_.numel(); ++i) values_.push_back(value_of(host_, i));
  on_their_way_ = false;
  return values_;
}

}}  // namespace holdfast::v0_2
