// Sums of a few numbers over all ranks, on their way beside what the ranks do meanwhile: the loss of a step
// that all show, the score of an evaluation of which each made a part.
//
//   holdfast::SumOverRanks sum(group);
//   sum.begin(loss.to(at::kDouble));
//   parallel.backward(loss);
//   const double mean = sum.wait().item<double>() / group.world_size();
//
// One message on the tree or ring, of some bytes; begin() waits for nobody. All ranks get the same bits. In a
// world of one wait() returns the numbers that begin() was given.
//
// Requires: group outlives this object; all ranks make the same calls, in the same order among the group's
// other collectives, with as many numbers. Errors: GroupError from wait() when a partner is lost, after the
// group's time-out at the latest; UsageError for calls out of order. Threads: the training thread. With CUDA:
// its current stream; neither call waits for the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "holdfast/distributed/process_group.h"

namespace holdfast::inline v1 {

class SumOverRanks {
 public:
  // `what` is for errors: "losses".
  SumOverRanks(ProcessGroup& group, const char* what);
  // Begun and not waited for: goes on by itself.
  ~SumOverRanks();
  SumOverRanks(const SumOverRanks&) = delete;
  SumOverRanks& operator=(const SumOverRanks&) = delete;

  // Copied on the way: the loss itself may go in, which backward still needs.
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

}  // namespace holdfast::inline v1
