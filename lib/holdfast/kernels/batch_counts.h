// Adds 1 to the counters of all batch norms of a forward pass (num_batches_tracked) with one kernel instead
// of one each. ResNet-50 has 53.
//
//   BatchCounts counts;                       // on this thread, until it ends
//   const at::Tensor loss = forward(batch);   // each norm calls BatchCounts::count(num_batches_tracked)
//   counts.add();
//
// Without such an object, count() adds at once. Without add(), as after an exception, nothing is counted.
// Threads: each thread has its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT BatchCounts {
 public:
  BatchCounts();
  ~BatchCounts();
  BatchCounts(const BatchCounts&) = delete;
  BatchCounts& operator=(const BatchCounts&) = delete;

  void add();

  static void count(const at::Tensor& counter);
  // True if count() only collects on this thread.
  static bool collects();

 private:
  BatchCounts* const outer_;
  std::vector<at::Tensor> counters_;
};

}}  // namespace holdfast::v0_2
