// The late copy of live tensors. Those in plain host memory are copied by whoever calls run(); the others
// (device memory, unusual strides) at once, when they are added.
//
// Threads: as LateCopy says.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::inline v1::internal {

class LateTensors final : public LateCopy {
 public:
  void add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to);
  bool empty() const { return plain_.empty(); }
  void run() noexcept override { copies_.work(); }
  std::vector<std::string> changed() const override;

 private:
  struct Plain {
    std::string name;
    c10::Storage storage;  // module.to() gives a tensor another one
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };
  std::vector<Plain> plain_;
  CopyList copies_;
};

}  // namespace holdfast::inline v1::internal
