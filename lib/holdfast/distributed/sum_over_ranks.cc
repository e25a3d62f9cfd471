#include "holdfast/distributed/sum_over_ranks.h"

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct SumOverRanks::Work {
  c10::intrusive_ptr<c10d::Work> work;
};

SumOverRanks::SumOverRanks(ProcessGroup& group, const char* what)
    : group_(&group), what_(what), work_(std::make_unique<Work>()) {}

SumOverRanks::~SumOverRanks() = default;

void SumOverRanks::begin(const at::Tensor& numbers) {
  if (pending()) throw UsageError("a sum over the ranks was begun, and not waited for");
  // Without the others the result would be this rank's part, which is a wrong sum.
  if (group_->alone() && group_->world_size() > 1) throw UsageError("the ranks have parted already");
  // clone(), because the sum overwrites it; to() returns the same tensor if the type is equal.
  at::Tensor sums = numbers.detach().clone(at::MemoryFormat::Contiguous);
  if (!group_->alone()) {
    std::vector<at::Tensor> tensors{sums};
    group_->guard(what_, [&] { work_->work = group_->c10d()->allreduce(tensors); });
  }
  // Set last: if begin() throws, nothing is pending.
  numbers_ = std::move(sums);
}

at::Tensor SumOverRanks::wait() {
  if (!pending()) throw UsageError("no sum over the ranks was begun");
  at::Tensor sums = std::exchange(numbers_, {});
  if (const auto work = std::exchange(work_->work, {})) {
    group_->guard(what_, [&] { work->wait(); });
  }
  return sums;
}

}}  // namespace holdfast::v0_2
