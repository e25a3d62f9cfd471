// Updates counted where the parameters are: a skipped update does not count, and only the device knows. torch
// keeps an integer in each parameter's state; it is right after settle(), and whenever a count is begun.
//
// Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::inline v1::internal {

class DeviceSteps {
 public:
  // The count of the parameter whose state holds `slot` and says `step`: begun anew when the state is another
  // than last time (a checkpoint was loaded) or says something else.
  const at::Tensor& of(const at::Tensor& parameter, const at::Tensor& slot, std::int64_t step);

  // Calls told(parameter, slot, count) for each; waits for the devices, once each.
  template <class F>
  void settle(const F& told) {
    for (const auto& [parameter, slot, step] : read()) {
      Count& count = counts_.at(parameter);
      if (told(parameter, slot, step)) count.told = step;
    }
  }

 private:
  struct Count {
    c10::weak_intrusive_ptr<at::TensorImpl> slot;  // alive or not, nothing else has its address
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

}  // namespace holdfast::inline v1::internal
