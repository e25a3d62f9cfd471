#include "holdfast/optim/lamb.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_zero.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "holdfast/optim/clip.h"
#include "holdfast/optim/internal/adam_work.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/whole_tensors.h"

namespace holdfast { inline namespace v0_2 {
namespace internal {
namespace {

// A step count so large that 1 - beta^t is 1: Adam's kernel then makes no bias correction.
constexpr double kEver = 1e30;

std::optional<at::ScalarType> wide(at::ScalarType dtype) {
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  return narrow ? std::optional(at::kFloat) : std::nullopt;
}

at::Tensor rates_by(at::Tensor weights, const at::Tensor& updates, const at::Tensor& rate, double most_norm) {
  // The upper bound of φ in You et al. (2019).
  if (most_norm > 0) weights = weights.clamp_max(most_norm);
  // Without a norm, as for weights that are zero, the ratio is 1, as in the usual implementations.
  const at::Tensor ratios = at::where(weights.gt(0).logical_and(updates.gt(0)), weights / updates, 1.0);
  return ratios * rate;
}

void scale(const KernelList& list, std::vector<at::Tensor>& directions, const at::Tensor& rate,
           double most_norm) {
  // All norms of a list in one tensor each, so that the ratios of all parameters cost a few kernels.
  const at::Tensor weights = at::stack(at::_foreach_norm(list.parameters, 2, wide(list.dtype)));
  const at::Tensor updates = at::stack(at::_foreach_norm(directions, 2, wide(list.dtype)));
  const at::Tensor rates = rates_by(weights, updates, rate, most_norm).to(weights.scalar_type());
  at::_foreach_mul_(directions, rates.unbind());
}

// Squares of norms per tensor. Pieces of a tensor that spans several shares are added in the order of the
// shares, on a GPU too, so the sum does not depend on timing.
at::Tensor squares_of(const std::vector<at::Tensor>& pieces, const std::vector<std::size_t>& tensors,
                      std::size_t count) {
  const auto norms = at::_foreach_norm(pieces, 2, wide(pieces.front().scalar_type()));
  const at::Tensor none = at::zeros({}, norms.front().options());
  std::vector<at::Tensor> table(count, none);
  std::vector<std::size_t> seen(count, 0);
  for (std::size_t i = 0; i < norms.size(); ++i) {
    const std::size_t row = seen[tensors[i]]++;
    if ((row + 1) * count > table.size()) table.resize((row + 1) * count, none);
    table[row * count + tensors[i]] = norms[i];
  }
  // In double, because squares of FP16 norms overflow and sums of floats depend on their number.
  return at::stack(table).to(at::kDouble).square().view({-1, static_cast<std::int64_t>(count)}).sum(0);
}

// As scale(), for parameters that are shares of tensors. One collective.
void scale_pieces(const KernelList& list, const std::vector<at::Tensor>& directions, const at::Tensor& rate,
                  double most_norm, std::size_t group, const WholeTensors& whole) {
  std::vector<at::Tensor> weights, updates;
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < directions.size(); ++i) {
    for (const Piece& piece : whole.pieces(list.parameters[i])) {
      weights.push_back(list.parameters[i].narrow(0, piece.at, piece.count));
      updates.push_back(directions[i].narrow(0, piece.at, piece.count));
      tensors.push_back(piece.parameter);
    }
  }
  const std::size_t count = whole.count(group);
  at::Tensor squares =
      at::zeros({2, static_cast<std::int64_t>(count)}, at::TensorOptions(list.device).dtype(at::kDouble));
  // A rank may have no piece of this group at all.
  if (!tensors.empty()) {
    squares[0].copy_(squares_of(weights, tensors, count));
    squares[1].copy_(squares_of(updates, tensors, count));
  }
  // Called even without pieces: all ranks take part in the collective.
  whole.add_up(squares);
  if (tensors.empty()) return;
  const at::Tensor norms = squares.sqrt();
  const auto rates =
      rates_by(norms[0], norms[1], rate, most_norm).to(wide(list.dtype).value_or(list.dtype)).unbind();
  std::vector<at::Tensor> of_pieces;
  for (const std::size_t tensor : tensors) of_pieces.push_back(rates[tensor]);
  at::_foreach_mul_(updates, of_pieces);
}

// The norm over all gradients of all groups.
at::Tensor norm_of_all(const torch::optim::Optimizer& optimizer, const WholeTensors* whole) {
  const at::Tensor here = grad_norm(gradients_of(optimizer));
  if (whole == nullptr) return here;
  at::Tensor squares = here.to(at::kDouble).square();
  whole->add_up(squares);
  return squares.sqrt();
}

}  // namespace

struct LambFields {
  static constexpr char kName[] = "LAMB";
  static constexpr bool kInShares = true;
  static constexpr const char* kLater[] = {"max_grad_norm", "grad_averaging", "bias_correction", "decoupled",
                                           "most_norm"};
  using Options = LambOptions;
  using State = LambParamState;
  static void options(Options& of, const auto& visit) {
    visit("lr", of.lr());
    visit("betas", of.betas());
    visit("eps", of.eps());
    visit("weight_decay", of.weight_decay());
    visit("adapt_all", of.adapt_all());
    visit("max_grad_norm", of.max_grad_norm());
    visit("grad_averaging", of.grad_averaging());
    visit("bias_correction", of.bias_correction());
    visit("decoupled", of.decoupled());
    visit("most_norm", of.most_norm());
  }
  static void slots(State& of, const auto& visit) {
    visit("exp_avg", of.exp_avg());
    visit("exp_avg_sq", of.exp_avg_sq());
  }
};

struct LambKernel {
  using Options = LambOptions;
  using State = LambParamState;
  static constexpr char kName[] = "Lamb";
  static const OptimizerKind& kind() { return kKindOf<LambFields>; }
  static constexpr bool kByTensor = true;
  static void check(const Options& options) {
    check_adam(options, kName);
    if (options.max_grad_norm() >= 0 && options.most_norm() >= 0) return;
    throw UsageError("Lamb: max_grad_norm and most_norm must not be negative");
  }

  // The number that divides all gradients: the loss scale, the clip, or both.
  static std::optional<at::Tensor> divisor(torch::optim::Optimizer& optimizer,
                                           const std::optional<at::Tensor>& grad_scale,
                                           const WholeTensors* whole) {
    double limit = 0;
    for (auto& group : optimizer.param_groups()) {
      const double wanted = static_cast<const Options&>(group.options()).max_grad_norm();
      if (&group != &optimizer.param_groups().front() && wanted != limit) {
        throw UsageError(
            "Lamb: the gradients of all groups are clipped together: give every group the same "
            "max_grad_norm");
      }
      limit = wanted;
    }
    // Without a limit nothing has to be computed.
    if (limit == 0) return grad_scale;
    const at::Tensor norm = norm_of_all(optimizer, whole);
    if (!grad_scale) return (norm / limit).clamp_min(1);
    const at::Tensor scale = grad_scale->reshape({}).to(norm.options());
    return (norm / (scale * limit)).clamp_min(1) * scale;
  }

  static void run(KernelList& list, const Options& options, std::size_t group, bool maximize, bool on_device,
                  DeviceRates& rates, std::optional<at::Tensor> divisor,
                  const std::optional<at::Tensor>& found, const WholeTensors* whole) {
    const auto [beta1, beta2] = options.betas();
    const double decay = options.weight_decay();
    const bool in_gradient = decay != 0 && !options.decoupled();
    if (divisor && (in_gradient || list.dtype == at::kDouble)) {  // the kernel would divide by a float, after
                                                                  // the decay
      at::_foreach_div_(list.gradients,
                        divisor->reshape({}).to(list.dtype == at::kDouble ? at::kDouble : at::kFloat));
      divisor.reset();
    } else if (divisor) {
      divisor = divisor->to(at::kFloat);
    }
    std::vector<at::Tensor> gradients = list.gradients;
    if (in_gradient) {
      // Going up means to negate the gradient before the decay is added, because the decay always shrinks.
      if (maximize) gradients = at::_foreach_neg(gradients);
      gradients = at::_foreach_add(gradients, list.parameters, decay);
      maximize = false;
    }
    std::vector<at::Tensor> steps = list.steps;
    if (!options.bias_correction()) {
      // The kernel reads a tensor for each parameter; all of them may be the same one.
      steps.assign(steps.size(), at::full({}, kEver, steps.front().options()));
    }
    // Adam's kernel with parameters of zero and rate -1 leaves its direction in them. A skipped kernel leaves
    // zeros.
    std::vector<at::Tensor> directions;
    directions.reserve(list.parameters.size());
    for (const at::Tensor& parameter : list.parameters) directions.push_back(at::empty_like(parameter));
    at::_foreach_zero_(directions);
    // Without averaging the gradient enters with weight 1 instead of 1 - beta1.
    const double rate_of_direction = options.grad_averaging() ? -1.0 : -1.0 / (1 - beta1);
    at::_fused_adam_(directions, gradients, list.slots[0], list.slots[1], {}, steps, rate_of_direction, beta1,
                     beta2, 0, options.eps(), false, maximize, divisor, found);
    if (decay != 0 && !in_gradient) at::_foreach_add_(directions, list.parameters, decay);

    const bool adapts = decay != 0 || options.adapt_all();
    // Without a norm the rate is a plain number, and one kernel is enough.
    if (!on_device && !adapts) {
      at::_foreach_add_(list.parameters, directions, -options.lr());
      return;
    }
    at::Tensor rate = on_device ? rates.of(group, options.lr(), list.device).neg()
                                : at::full({}, -options.lr(), at::kDouble);
    // With weight decay the direction is not zero even if the kernel was skipped; a rate of 0 leaves x
    // unchanged.
    if (found) rate = rate * (1 - found->reshape({}));
    if (adapts && whole != nullptr) {
      scale_pieces(list, directions, rate, options.most_norm(), group, *whole);
    } else if (adapts) {
      scale(list, directions, rate, options.most_norm());
    } else {
      at::_foreach_mul_(directions, rate.to(list.dtype));
    }
    at::_foreach_add_(list.parameters, directions);
  }
};

}  // namespace internal

template class FusedOptimizer<torch::optim::Optimizer, LambOptions, internal::LambKernel>;

}}  // namespace holdfast::v0_2
