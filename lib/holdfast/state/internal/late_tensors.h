// The late copy of live tensors in host memory. The threads that call run() share the work. Contiguous
// tensors are copied as bytes, those with other strides (channels_last) element by element. Conjugated and
// negated views cannot be read that way; add() copies them at once.
//
// Threads: as in LateCopy.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "holdfast/snapshot/copy_list.h"
#include "holdfast/snapshot/samples.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/internal/strided_copy.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class LateTensors final : public LateCopy {
 public:
  void add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to);
  // Call once, after the last add().
  void keep_samples() { samples_.keep(); }
  bool empty() const { return plain_.empty() && strided_.empty(); }
  void run() noexcept override;
  void run_digesting(PieceDigests& digests) noexcept override;
  std::vector<std::string> changed() const override;
  std::vector<std::string> changed_samples() const override;

 private:
  struct Plain {
    std::string name;
    c10::Storage storage;  // keeps the memory of `from` alive: module.to() gives the tensor another storage
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
  std::atomic<std::size_t> taken_{0};  // index of the next item of strided_ to copy
  CopyList copies_;
  Samples samples_;  // owner: 2 * index in plain_, or 2 * index in strided_ + 1
};

}}}  // namespace holdfast::v0_2::internal
