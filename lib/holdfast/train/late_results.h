// Brings a few numbers of a step from a device to the host without waiting for the device.
//
//   results.begin({loss, norm});                             // in the order of the current stream
//   …                                                        // launch the next forward and backward pass
//   const std::vector<double> numbers = results.wait();      // its copy has ended long ago
//
// A device gathers the numbers with one kernel and copies them once, to page-locked memory. wait() asks an
// event until that copy has ended; it never drains the stream. Numbers of the host are read in begin().
//
// Errors: c10::Error from wait() for a device that failed. Threads: the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class LateResults {
 public:
  // Tensors of one element each, of any floating-point types. Numbers that nobody has waited for are dropped.
  // They may be overwritten afterwards.
  void begin(const std::vector<at::Tensor>& scalars);
  // Requires begin(). The values as doubles, which is exact.
  const std::vector<double>& wait();

 private:
  std::vector<double> values_;
  at::Tensor host_;  // page-locked
  std::optional<c10::Event> copied_;
  bool on_their_way_ = false;
};

}}  // namespace holdfast::v0_2
