// The tensors of one update, sorted into the lists that ATen's fused kernels take: one device and one type a
// list. On a CPU those kernels go through raw memory in storage order, whatever the strides say; so tensors
// that are not laid out as the rest of their row (a parameter with gaps, a gradient in another memory format)
// are copied into one layout first, and what the kernel wrote is copied back.
//
// Errors: UsageError from require_usable() and require_slots(), which go before the first kernel.
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace holdfast::inline v1::internal {

// Refuses what no fused kernel computes rightly. `optimizer` as in "FusedSgd"; parameter `index` of `group`.
void require_usable(const char* optimizer, std::size_t group, std::size_t index, const at::Tensor& parameter,
                    const at::Tensor& gradient);

// Refuses slots that do not fit their parameter; undefined ones are yet to be made.
void require_slots(const char* optimizer, const at::Tensor& parameter, std::span<const at::Tensor> slots);

struct KernelList {
  at::Device device;
  at::ScalarType dtype;
  bool fresh;  // rows whose slots are yet to be filled, where the kernel cares
  bool small;  // rows too short for threads
  std::vector<at::Tensor> parameters, gradients;
  std::array<std::vector<at::Tensor>, 3> slots;
  std::vector<at::Tensor> steps;
};

class KernelLists {
 public:
  // Keeps the memory of the lists, not the tensors.
  void clear();
  // One row, of tensors that were found usable. Undefined slots are left out. With `writes_gradient` what the
  // kernel does to the gradient counts.
  void add(const at::Tensor& parameter, const at::Tensor& gradient, std::span<const at::Tensor> slots,
           const at::Tensor& step, bool fresh, bool writes_gradient);
  std::span<KernelList> lists() { return {lists_.data(), used_}; }
  // After the kernels: copies back, tells autograd that the parameters have changed, and clears.
  void finish();

 private:
  KernelList& list_for(const at::Tensor& parameter, bool fresh);
  std::vector<KernelList> lists_;
  std::size_t used_ = 0;
  std::vector<std::pair<at::Tensor, at::Tensor>> back_;  // to, from
  std::vector<at::Tensor> copied_;                       // parameters of rows that were copied
};

// On a CPU the kernels start all threads for every tensor, however small: a hundred times the work of a bias.
// While this lives, the calling thread computes alone.
class Alone {
 public:
  explicit Alone(bool really);
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  int threads_ = 0;
};

// Is the whole update to be left out? Only asks where the answer is at hand: on a CPU.
bool skipped_here(const std::optional<at::Tensor>& found_inf);
// A scaler's tensor for kernels on `device`.
std::optional<at::Tensor> on_device(const std::optional<at::Tensor>& tensor, at::Device device);
// The same of found_inf, of which the kernels know 0 and 1 alone.
std::optional<at::Tensor> found_on_device(const std::optional<at::Tensor>& found_inf, at::Device device);
void require_scalar(const std::optional<at::Tensor>& tensor, const char* name);

// A learning rate in a device's memory; written when it changes.
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

}  // namespace holdfast::inline v1::internal
