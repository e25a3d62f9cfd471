// Sorts the tensors of one update into the lists that ATen's fused kernels take, one device and one type per
// list. CPU kernels read memory in storage order and ignore strides. So a tensor with another layout than the
// rest of its row (a parameter with gaps, a gradient in another memory format) is copied first; results are
// copied back.
//
// Errors: UsageError from require_usable() and require_slots(), which run before the first kernel. Threads:
// the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace internal {

// Refuses tensors that no fused kernel computes correctly. `optimizer`: a name, "FusedSgd". Parameter `index`
// of `group`.
void require_usable(const char* optimizer, std::size_t group, std::size_t index, const at::Tensor& parameter,
                    const at::Tensor& gradient);

// Refuses slots that do not fit their parameter. Undefined slots are fine: they do not exist yet.
void require_slots(const char* optimizer, const at::Tensor& parameter, std::span<const at::Tensor> slots);

struct KernelList {
  at::Device device;
  at::ScalarType dtype;
  bool fresh;  // the slots are new, and the kernel must fill them
  bool small;  // rows too short for threads
  std::vector<at::Tensor> parameters, gradients;
  std::array<std::vector<at::Tensor>, 3> slots;
  std::vector<at::Tensor> steps;
};

class KernelLists {
 public:
  // Frees the tensors and keeps the memory of the lists. `apart`: small tensors get a list of their own;
  // false for a kernel that needs all pieces of a tensor in one list.
  void clear(bool apart = true);
  // Adds one row of usable tensors. Undefined slots are left out. `writes_gradient`: the kernel's changes of
  // the gradient must be kept.
  void add(const at::Tensor& parameter, const at::Tensor& gradient, std::span<const at::Tensor> slots,
           const at::Tensor& step, bool fresh, bool writes_gradient);
  std::span<KernelList> lists() { return {lists_.data(), used_}; }
  // After the kernels: copies results back, tells autograd that the parameters have changed, and clears.
  void finish();

 private:
  KernelList& list_for(const at::Tensor& parameter, bool fresh);
  std::vector<KernelList> lists_;
  std::size_t used_ = 0;
  bool apart_ = true;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // (to, from)
  std::vector<at::Tensor> copied_;                       // parameters of copied rows
};

// While this object lives, the calling thread computes alone. CPU kernels start all threads for every tensor,
// which costs a hundred times the work of a bias.
class OneThread {
 public:
  explicit OneThread(bool really);
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_ = 0;
};

// True if the whole update must be skipped. Only looks at a found_inf that is on the CPU, so it never waits.
bool skipped_here(const std::optional<at::Tensor>& found_inf);
// Copies a scaler's tensor to `device`.
std::optional<at::Tensor> on_device(const std::optional<at::Tensor>& tensor, at::Device device);
// As on_device(), for found_inf: the kernels only know 0 and 1.
std::optional<at::Tensor> found_on_device(const std::optional<at::Tensor>& found_inf, at::Device device);
void require_scalar(const std::optional<at::Tensor>& tensor, const char* name);

// Learning rates in device memory, written when they change.
class DeviceRates {
 public:
  const at::Tensor& of(std::size_t group, double rate, at::Device device);
  template <class RateOf>
  void write(const RateOf& rate_of) {
    for (Rate& rate : rates_) put(rate, rate_of(rate.group));
  }

 private:
  struct Rate {
    std::size_t group;
    at::Device device;
    double value;
    at::Tensor tensor;
  };
  static void put(Rate& rate, double value);
  std::vector<Rate> rates_;
};

}}}  // namespace holdfast::v0_2::internal
