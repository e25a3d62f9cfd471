// The late copy of live tensors in host memory, by whoever calls run(): those in logical order as bytes, laid
// end to end; those with other strides (channels_last) element by element. What cannot be read so (conjugated
// and negated views) is copied at once, when it is added.
//
// Threads: as LateCopy says.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/internal/strided_copy.h"

namespace holdfast::inline v1::internal {

class LateTensors final : public LateCopy {
 public:
  void add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to);
  bool empty() const { return plain_.empty() && strided_.empty(); }
  void run() noexcept override;
  std::vector<std::string> changed() const override;

 private:
  struct Plain {
    std::string name;
    c10::Storage storage;  // module.to() gives a tensor another one
    std::span<const std::byte> from;
    std::span<std::byte> to;
  };
  struct Spread {
    std::string name;
    c10::Storage storage;
    Strided from;
    std::span<std::byte> to;
  };
  std::vector<Plain> plain_;
  std::vector<Spread> strided_;
  std::atomic<std::size_t> taken_{0};  // of strided_
  CopyList copies_;
};

}  // namespace holdfast::inline v1::internal
