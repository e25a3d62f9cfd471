#include "holdfast/state/internal/late_tensors.h"

#include <cstring>

#include "holdfast/state/stager.h"

namespace holdfast::inline v1::internal {

void LateTensors::add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to) {
  const auto* const memory = static_cast<const std::byte*>(tensor.const_data_ptr());
  if (plain_memory(tensor)) {
    const std::span from(memory, tensor.nbytes());
    plain_.push_back({name, tensor.storage(), from, to});
    copies_.add(from, to);
  } else if (tensor.device().is_cpu() && !tensor.is_conj() && !tensor.is_neg()) {
    strided_.push_back({name, tensor.storage(),
                        strided(memory, tensor.element_size(), tensor.sizes(), tensor.strides()), to});
  } else {
    Stager now;
    now.add(tensor, to);
    now.run();
  }
}

void LateTensors::run() noexcept {
  copies_.work();
  while (true) {
    const std::size_t next = taken_.fetch_add(1, std::memory_order_relaxed);
    if (next >= strided_.size()) return;
    copy_strided(strided_[next].from, strided_[next].to.data());
  }
}

std::vector<std::string> LateTensors::changed() const {
  std::vector<std::string> names;
  for (const Plain& tensor : plain_) {
    const bool same =
        tensor.from.empty() || std::memcmp(tensor.from.data(), tensor.to.data(), tensor.from.size()) == 0;
    if (!same) names.push_back(tensor.name);
  }
  for (const Spread& tensor : strided_) {
    if (!same_as_strided(tensor.from, tensor.to.data())) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace holdfast::inline v1::internal
