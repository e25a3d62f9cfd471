#include "holdfast/distributed/sharded_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/distributed/internal/replica.h"
#include "holdfast/distributed/internal/sharded_parts.h"

namespace holdfast { inline namespace v0_2 {
namespace {

void require_fresh(const torch::optim::Optimizer& optimizer) {
  const OptimizerKind* const kind = kind_of(optimizer);
  if (kind == nullptr || !kind->in_shares) {
    throw UsageError(
        "a ShardedOptimizer takes SGD, Adam or AdamW, torch::optim's or this library's, or Lamb: the updates "
        "of others need whole tensors");
  }
  // Existing slots belong to whole parameters and would have no place.
  if (!optimizer.state().empty()) {
    throw UsageError(
        "a ShardedOptimizer takes an optimizer before its first update: make it first, then load or train");
  }
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                                   ProcessGroup& group, const ShardedOptions& options) {
  require_fresh(optimizer);
  if (options.chunk_bytes < 1) throw UsageError("a ShardedOptimizer's chunk_bytes must be at least 1");
  if (group.alone() && group.world_size() > 1) {
    throw UsageError("the ranks have parted already: make a ShardedOptimizer before ProcessGroup::leave()");
  }
  // Slots are stored by name, so that any number of ranks can read them.
  std::map<const c10::TensorImpl*, std::string> names;
  for (const ModuleTensor& entry : replica_of(module)) {
    names.emplace(entry.tensor.unsafeGetTensorImpl(), entry.name);
  }
  auto parts = std::make_unique<Parts>(optimizer, module, group, options);
  std::set<const c10::TensorImpl*> taken;
  for (auto& group_of : optimizer.param_groups()) {
    Parts::Group& made = parts->groups.emplace_back();
    for (const at::Tensor& parameter : group_of.params()) {
      const auto name = names.find(parameter.unsafeGetTensorImpl());
      if (name == names.end()) {
        throw UsageError("a parameter of group " + std::to_string(parts->groups.size() - 1) +
                         " of a ShardedOptimizer belongs to no part of its module");
      }
      if (!taken.insert(parameter.unsafeGetTensorImpl()).second) {
        throw UsageError("parameter " + name->second +
                         " is listed twice, as parameters() does for a module that is registered twice: "
                         "list it once, as decay_parameters() of optim/decay_groups.h does");
      }
      // Frozen and empty parameters are never updated.
      if (parameter.numel() == 0) continue;
      if (!parameter.requires_grad()) {
        parts->frozen.emplace_back(name->second, parameter);
        continue;
      }
      if (!is_dense(parameter)) {
        throw UsageError("parameter " + name->second +
                         " has gaps in memory: a ShardedOptimizer needs dense ones");
      }
      made.parameters.push_back(parameter);
      made.names.push_back(name->second);
    }
    made.chosen = parts->options_now(group_of.options());
    for (Chunk& chunk : cut(made.parameters, options.chunk_bytes, parts->world)) {
      const at::NoGradGuard no_grad;
      // Each rank keeps its own part of every chunk, and the optimizer trains that.
      at::Tensor share = at::zeros({chunk.share}, chunk.options);
      share.set_requires_grad(true);
      made.chunks.push_back({.chunk = std::move(chunk), .share = std::move(share), .own = {}});
      auto& last = made.chunks.back();
      last.own = within_part(last.chunk.pieces, parts->rank * last.chunk.share,
                             (parts->rank + 1) * last.chunk.share);
    }
  }
  parts_ = std::move(parts);
  // From here on nothing can fail.
  if (auto* const own = dynamic_cast<OwnOptimizer*>(&optimizer)) own->share(parts_.get());
  for (std::size_t g = 0; g < parts_->groups.size(); ++g) {
    auto& parameters = optimizer.param_groups()[g].params();
    parameters.clear();
    for (auto& part : parts_->groups[g].chunks) parameters.push_back(part.share);
  }
}

ShardedOptimizer::~ShardedOptimizer() {
  // The optimizer may outlive this object; it must not ask it for whole norms any more.
  if (auto* const own = dynamic_cast<OwnOptimizer*>(parts_->optimizer)) own->share(nullptr);
}

void ShardedOptimizer::zero_grad() {
  for (Parts::Group& group : parts_->groups) {
    // Reset and not zeroed: the next backward pass then writes instead of adding.
    for (at::Tensor& parameter : group.parameters) parameter.mutable_grad().reset();
  }
}

void ShardedOptimizer::step() {
  reduce();
  parts_->optimizer->step();
  gather();
}

void ShardedOptimizer::reduce() {
  const at::NoGradGuard no_grad;
  Parts& parts = *parts_;
  // The gathered slots are of the previous update.
  parts.whole.clear();
  parts.require_gradients();
  parts.require_layout();
  for (Parts::Group& group : parts.groups) {
    for (Parts::Part& part : group.chunks) {
      // Reads the module's parameters again: the program may have loaded or exchanged them since the last
      // update.
      Parts::take(group.parameters, part.own, part.share);
      at::Tensor& gradient = part.share.mutable_grad();
      if (!gradient.defined()) gradient = at::zeros({part.chunk.share}, part.chunk.options);
      // The gradients are the mean of all ranks already, or this rank has all: nothing is sent.
      if (parts.options.averaged || parts.group->alone()) {
        gradient.slice(0, Parts::end_of(part.own)).zero_();  // a clip by NaN turns the padding into NaN
        for (const Piece& piece : part.own) {
          const at::Tensor& whole = group.parameters[piece.parameter];
          gradient.narrow(0, piece.at, piece.count)
              .copy_(dense_view(laid_out_as(whole, whole.grad())).narrow(0, piece.from, piece.count));
        }
      } else {
        parts.reduce_scatter(group, part, gradient);
      }
    }
  }
}

at::Tensor ShardedOptimizer::clip_grad_norm(double max_norm) {
  if (!(max_norm > 0)) throw UsageError("clip_grad_norm needs a norm above 0");
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (const Parts::Group& group : parts_->groups) {
    for (const Parts::Part& part : group.chunks) {
      if (!part.share.grad().defined()) throw UsageError("clip_grad_norm comes after reduce()");
      // In double, and summed over ranks: all ranks get the same factor, whatever their shares.
      squares.push_back(at::linalg_vector_norm(part.share.grad(), 2, {}, false, at::kDouble).square());
    }
  }
  at::Tensor norm = at::stack(squares).sum();
  parts_->add_up(norm);
  norm = norm.sqrt();
  // As clip_grad_norm() of optim/clip.h.
  const at::Tensor factor = (max_norm / (norm + 1e-6)).clamp_max(1);
  for (Parts::Group& group : parts_->groups) {
    for (Parts::Part& part : group.chunks) {
      part.share.mutable_grad().mul_(factor.to(part.share.device(), part.share.scalar_type()));
    }
  }
  return norm;
}

void ShardedOptimizer::gather() {
  const at::NoGradGuard no_grad;
  for (Parts::Group& group : parts_->groups) {
    for (Parts::Part& part : group.chunks) {
      const at::Tensor all = parts_->all_of("the parameters", part, part.share.detach());
      for (const Piece& piece : part.chunk.pieces) {
        at::Tensor& parameter = group.parameters[piece.parameter];
        dense_view(parameter).narrow(0, piece.from, piece.count).copy_(all.narrow(0, piece.at, piece.count));
      }
    }
  }
}

std::int64_t ShardedOptimizer::slot_bytes() const {
  std::int64_t bytes = 0;
  for (const Parts::Group& group : parts_->groups) {
    for (const Parts::Part& part : group.chunks) {
      for (const auto& [name, slot] : parts_->slots_of(part.share)) {
        bytes += static_cast<std::int64_t>(slot.nbytes());
      }
    }
  }
  return bytes;
}

}}  // namespace holdfast::v0_2
