// Sums a few numbers over all ranks while they compute: the loss of a step, or the parts of an evaluation's
// score.
//
//   holdfast::SumOverRanks sum(group);
//   sum.begin(loss.to(at::kDouble));
//   parallel.backward(loss);
//   const double mean = sum.wait().item<double>() / group.world_size();
//
// Requires: the group outlives this object. All ranks make the same calls in the same order among the group's
// collectives, with as many numbers. Errors: GroupError from wait() for a lost rank, at the latest after the
// group's timeout; UsageError for calls out of order. Threads: the training thread and its current CUDA
// stream; neither call waits for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "holdfast/base/export.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { inline namespace v0_2 {

// Costs one all-reduce of some bytes; begin() does not wait. All ranks get the same bits. In a world of one
// wait() returns the numbers that begin() was given.
class HOLDFAST_EXPORT SumOverRanks {
 public:
  // `what` is for errors: "losses".
  SumOverRanks(ProcessGroup& group, const char* what);
  // A sum that was begun and not waited for continues by itself.
  ~SumOverRanks();
  SumOverRanks(const SumOverRanks&) = delete;
  SumOverRanks& operator=(const SumOverRanks&) = delete;

  // Copies the numbers, so a loss that backward still needs may be passed.
  void begin(const at::Tensor& numbers);
  bool pending() const { return numbers_.defined(); }
  at::Tensor wait();

 private:
  struct Work;

  ProcessGroup* group_;
  const char* what_;
  at::Tensor numbers_;
  std::unique_ptr<Work> work_;
};

}}  // namespace holdfast::v0_2
