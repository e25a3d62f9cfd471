#include "holdfast/kernels/batch_counts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>

#include <algorithm>

namespace holdfast { inline namespace v0_2 {
namespace {

// Per thread: several models may run their forward passes at the same time.
thread_local BatchCounts* collecting = nullptr;

}  // namespace

BatchCounts::BatchCounts() : outer_(collecting) { collecting = this; }

BatchCounts::~BatchCounts() { collecting = outer_; }

void BatchCounts::add() {
  if (counters_.empty()) return;
  const at::NoGradGuard no_grad;
  // One kernel for all layers of the model instead of one for each.
  at::_foreach_add_(counters_, 1);
  counters_.clear();
}

void BatchCounts::count(const at::Tensor& counter) {
  if (collecting == nullptr) {
    counter.add_(1);
    return;
  }
  std::vector<at::Tensor>& counters = collecting->counters_;
  // A layer that runs twice: one kernel must not have the same tensor twice.
  const bool again = std::any_of(counters.begin(), counters.end(),
                                 [&](const at::Tensor& other) { return other.is_same(counter); });
  if (again) collecting->add();
  counters.push_back(counter);
}

bool BatchCounts::collects() { return collecting != nullptr; }

}}  // namespace holdfast::v0_2
