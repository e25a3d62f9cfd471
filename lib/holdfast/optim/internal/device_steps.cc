#include "holdfast/optim/internal/device_steps.h"

#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <map>

namespace holdfast { inline namespace v0_2 { namespace internal {

const at::Tensor& DeviceSteps::of(const at::Tensor& parameter, const at::Tensor& slot, std::int64_t step) {
  const auto known = counts_.find(parameter.unsafeGetTensorImpl());
  // The slot's identity tells a state that a load has replaced by another.
  if (known != counts_.end() && known->second.told == step &&
      known->second.slot._unsafe_get_target() == slot.unsafeGetTensorImpl()) {
    return known->second.count;
  }
  // ATen's fused kernels read counts as floats. A float counts exactly up to 16.7 million updates.
  at::Tensor count = at::full({}, static_cast<double>(step), parameter.options().dtype(at::kFloat));
  // A weak pointer: this table must not keep the memory of slots alive that the optimizer has dropped.
  Count begun{c10::weak_intrusive_ptr<at::TensorImpl>(slot.getIntrusivePtr()), step, std::move(count)};
  return counts_.insert_or_assign(parameter.unsafeGetTensorImpl(), std::move(begun)).first->second.count;
}

std::vector<DeviceSteps::Read> DeviceSteps::read() {
  struct Place {
    std::vector<at::Tensor> counts;
    std::vector<Read> reads;
  };
  std::map<std::string, Place> places;
  for (auto& [parameter, count] : counts_) {
    Place& place = places[count.count.device().str()];
    place.counts.push_back(count.count);
    place.reads.push_back({parameter, count.slot._unsafe_get_target(), 0});
  }
  std::vector<Read> all;
  for (auto& [device, place] : places) {
    // One copy per device: reading each count by itself would wait once per parameter.
    const at::Tensor here = at::stack(place.counts).cpu();
    const float* const steps = here.const_data_ptr<float>();
    for (std::size_t i = 0; i < place.reads.size(); ++i) {
      place.reads[i].step = static_cast<std::int64_t>(steps[i]);
      all.push_back(place.reads[i]);
    }
  }
  return all;
}

}}}  // namespace holdfast::v0_2::internal
