// Counts updates on the device: only the device knows whether an update was skipped. torch keeps an integer
// in each parameter's state. That integer is correct after settle() and when a count begins.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace internal {

class DeviceSteps {
 public:
  // The count of the parameter whose state has `slot` and step count `step`. Starts a new count if either
  // differs from the last call, as after loading a checkpoint.
  const at::Tensor& of(const at::Tensor& parameter, const at::Tensor& slot, std::int64_t step);

  // Calls told(parameter, slot, count) for each count. Waits once for each device.
  template <class F>
  void settle(const F& told) {
    for (const auto& [parameter, slot, step] : read()) {
      Count& count = counts_.at(parameter);
      if (told(parameter, slot, step)) count.told = step;
    }
  }

 private:
  struct Count {
    c10::weak_intrusive_ptr<at::TensorImpl> slot;  // weak: keeps the address from being reused, even if the
                                                   // slot is gone
    std::int64_t told;
    at::Tensor count;
  };
  struct Read {
    void* parameter;
    const at::TensorImpl* slot;
    std::int64_t step;
  };
  std::vector<Read> read();
  std::unordered_map<void*, Count> counts_;
};

}}}  // namespace holdfast::v0_2::internal
