#include "holdfast/optim/clip.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct Group {
  at::Device device;
  at::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

// The fast path of the _foreach functions needs one device and one type per call.
std::vector<Group> grouped(const std::vector<at::Tensor>& gradients, const char* who) {
  std::vector<Group> groups;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    if (gradient.layout() != at::kStrided) {
      throw UsageError(std::string(who) +
                       ": a gradient is sparse: make it dense (for an embedding, "
                       "sparse(false))");
    }
    Group* place = nullptr;
    for (Group& group : groups) {
      if (group.device == gradient.device() && group.dtype == gradient.scalar_type()) place = &group;
    }
    if (place == nullptr) place = &groups.emplace_back(Group{gradient.device(), gradient.scalar_type(), {}});
    place->gradients.push_back(gradient);
  }
  return groups;
}

// Result on the device of the first gradient. `wide`: computes in float at least.
at::Tensor norm_of(const std::vector<at::Tensor>& gradients, const std::vector<Group>& groups,
                   bool wide = false) {
  if (groups.empty()) return at::zeros({}, at::kFloat);
  // Norms go back into the order of the gradients: the bits of the sum of their squares depend on it.
  std::vector<std::vector<at::Tensor>> norms;
  for (const Group& group : groups) {
    const bool narrow = group.dtype == at::kHalf || group.dtype == at::kBFloat16;
    norms.push_back(
        at::_foreach_norm(group.gradients, 2, wide && narrow ? std::optional(at::kFloat) : std::nullopt));
  }
  std::vector<at::Tensor> ordered;
  std::vector<std::size_t> next(groups.size(), 0);
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.defined()) continue;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].device != gradient.device() || groups[g].dtype != gradient.scalar_type()) continue;
      // On one device, because their sum is one number.
      ordered.push_back(norms[g][next[g]++].to(groups.front().device));
    }
  }
  return ordered.size() == 1 ? ordered.front() : at::linalg_vector_norm(at::stack(ordered), 2);
}

// Negated, so that NaN is refused as well.
void require_limit(double limit, const char* who) {
  if (!(limit >= 0)) throw UsageError(std::string(who) + ": the limit must not be negative");
}

}  // namespace

std::vector<at::Tensor> gradients_of(const torch::optim::Optimizer& optimizer) {
  std::vector<at::Tensor> gradients;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      // A parameter that is listed twice must not count twice in the norm.
      if (gradient.defined() && seen.insert(gradient.unsafeGetTensorImpl()).second)
        gradients.push_back(gradient);
    }
  }
  return gradients;
}

at::Tensor grad_norm(const std::vector<at::Tensor>& gradients) {
  const at::NoGradGuard no_grad;
  // The norm of half gradients may exceed half's largest number, 65,504.
  return norm_of(gradients, grouped(gradients, "grad_norm"), /*wide=*/true);
}

at::Tensor clip_grad_norm(std::vector<at::Tensor>& gradients, double max_norm) {
  require_limit(max_norm, "clip_grad_norm");
  const at::NoGradGuard no_grad;
  std::vector<Group> groups = grouped(gradients, "clip_grad_norm");
  const at::Tensor norm = norm_of(gradients, groups);
  // Multiplies always, also by 1: a decision on the host would wait for the device.
  // 1e-6 as in torch.nn.utils.clip_grad_norm_: it keeps a gradient of zeros from a division by zero.
  const at::Tensor factor = at::clamp(max_norm / (norm + 1e-6), std::nullopt, 1.0);
  for (Group& group : groups) {
    const at::Tensor here = factor.to(group.device);
    at::_foreach_mul_(group.gradients, here);
  }
  return norm;
}

void divide_gradients(const std::vector<at::Tensor>& gradients, const at::Tensor& divisor) {
  const at::NoGradGuard no_grad;
  for (Group& group : grouped(gradients, "divide_gradients")) {
    at::_foreach_div_(group.gradients, divisor.to(group.device));
  }
}

void add_gradients(const std::vector<at::Tensor>& sums, const std::vector<at::Tensor>& gradients) {
  if (sums.empty()) return;
  const at::NoGradGuard no_grad;
  at::_foreach_add_(sums, gradients);
}

void clip_grad_value(std::vector<at::Tensor>& gradients, double limit) {
  require_limit(limit, "clip_grad_value");
  const at::NoGradGuard no_grad;
  for (Group& group : grouped(gradients, "clip_grad_value")) {
    at::_foreach_clamp_min_(group.gradients, -limit);
    at::_foreach_clamp_max_(group.gradients, limit);
  }
}

}}  // namespace holdfast::v0_2
