#include "holdfast/state/internal/late_tensors.h"

#include <cstring>

#include "holdfast/state/stager.h"

namespace holdfast::inline v1::internal {

void LateTensors::add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to) {
  if (!plain_memory(tensor)) {
    Stager now;
    now.add(tensor, to);
    now.run();
    return;
  }
  const std::span from(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  plain_.push_back({name, tensor.storage(), from, to});
  copies_.add(from, to);
}

std::vector<std::string> LateTensors::changed() const {
  std::vector<std::string> names;
  for (const Plain& tensor : plain_) {
    const bool same =
        tensor.from.empty() || std::memcmp(tensor.from.data(), tensor.to.data(), tensor.from.size()) == 0;
    if (!same) names.push_back(tensor.name);
  }
  return names;
}

}  // namespace holdfast::inline v1::internal
