#include "holdfast/distributed/internal/sharded_parts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "holdfast/base/error.h"
#include "holdfast/distributed/internal/c10d_compat.h"

namespace holdfast { inline namespace v0_2 {

void ShardedOptimizer::Parts::take(const std::vector<at::Tensor>& from, const std::vector<Piece>& own,
                                   const at::Tensor& share) {
  const at::NoGradGuard no_grad;
  for (const Piece& piece : own) {
    const at::Tensor elements = dense_view(from[piece.parameter]).narrow(0, piece.from, piece.count);
    share.narrow(0, piece.at, piece.count).copy_(elements);
  }
}

std::span<const Piece> ShardedOptimizer::Parts::pieces(const at::Tensor& share) const {
  for (const Group& of : groups) {
    for (const Part& part : of.chunks) {
      if (part.share.is_same(share)) return part.own;
    }
  }
  throw UsageError(
      "a ShardedOptimizer's optimizer has a parameter that is not one of its shares: give it the shares "
      "alone");
}

void ShardedOptimizer::Parts::add_up(at::Tensor& numbers) const {
  // Without partners the sum would be this rank's part, which is a wrong norm.
  if (group->alone() && world > 1) throw UsageError("norms over all ranks: the ranks have parted already");
  if (group->alone()) return;
  std::vector<at::Tensor> sum{numbers};
  group->guard("norms over all ranks", [&] { group->c10d()->allreduce(sum)->wait(); });
}

void ShardedOptimizer::Parts::require_gradients() const {
  for (const auto& [name, parameter] : frozen) {
    if (!parameter.requires_grad()) continue;
    throw UsageError("parameter " + name +
                     " takes a gradient now, and was frozen when the ShardedOptimizer was made: by "
                     "requires_grad_(), or as resume() restored it. Make the optimizer and the "
                     "ShardedOptimizer anew after the thaw, and before resume() with what the checkpoint has "
                     "(Checkpointer::peek())");
  }
  for (const Group& of : groups) {
    for (std::size_t i = 0; i < of.parameters.size(); ++i) {
      const at::Tensor& gradient = of.parameters[i].grad();
      if (gradient.defined() && gradient.layout() == at::kStrided) continue;
      throw UsageError("parameter " + of.names[i] + " has " +
                       (gradient.defined() ? "a sparse gradient" : "no gradient") +
                       " in this update: a ShardedOptimizer updates all. Leave it out of the model or of the "
                       "optimizer, or freeze it (requires_grad) before the ShardedOptimizer is made");
    }
  }
}

void ShardedOptimizer::Parts::Group::lie_now() {
  strides.clear();
  for (const at::Tensor& parameter : parameters) strides.push_back(parameter.strides().vec());
}

// Slots are cut from memory: in another layout they would belong to other elements.
void ShardedOptimizer::Parts::require_layout() {
  for (Group& of : groups) {
    if (updates(of) < 0) {
      of.lie_now();
      continue;
    }
    for (std::size_t i = 0; i < of.parameters.size(); ++i) {
      if (of.parameters[i].strides() == at::IntArrayRef(of.strides[i])) continue;
      throw UsageError("parameter " + of.names[i] +
                       " has got another memory layout since the last update (channels_last, for example), "
                       "and its optimizer slots have not: choose the layout before the first update");
    }
  }
}

// Divides before the sum, as the Reducer does: sums do not overflow, and bits are equal.
void ShardedOptimizer::Parts::reduce_scatter(const Group& of, const Part& part,
                                             const at::Tensor& gradient) const {
  const std::int64_t share = part.chunk.share;
  at::Tensor sent = at::empty({world * share}, part.chunk.options);
  for (const Piece& piece : part.chunk.pieces) {
    const at::Tensor& whole = of.parameters[piece.parameter];
    at::Tensor place = sent.narrow(0, piece.at, piece.count);
    at::mul_out(place, dense_view(laid_out_as(whole, whole.grad())).narrow(0, piece.from, piece.count),
                at::scalar_tensor(1.0 / world, sent.options()));
  }
  const Piece& last = part.chunk.pieces.back();
  // The padding at the end of the last share must not hold old memory: a NaN there would reach the norm.
  sent.narrow(0, last.at + last.count, sent.numel() - last.at - last.count).zero_();
  group->guard("gradients", [&] {
    c10d::ProcessGroup& c10d = *group->c10d();
    at::Tensor into = gradient;
    // On the host each rank adds the parts itself, in the order of the ranks, so a sum always has the same
    // bits.
    if (!sent.is_cpu()) {
      compat::reduce_scatter(c10d, into, sent)->wait();
      return;
    }
    at::Tensor received = at::empty_like(sent);
    compat::all_to_all(c10d, received, sent)->wait();
    into.copy_(received.narrow(0, 0, share));
    for (int r = 1; r < world; ++r) into.add_(received.narrow(0, r * share, share));
  });
}

at::Tensor ShardedOptimizer::Parts::all_of(const char* what, const Part& part,
                                           const at::Tensor& share) const {
  // One rank has everything already.
  if (group->alone()) return share;
  at::Tensor all = at::empty({world * part.chunk.share}, share.options().requires_grad(false));
  at::Tensor own = share;
  group->guard(what, [&] { compat::all_gather(*group->c10d(), all, own)->wait(); });
  return all;
}

ShardedOptimizer::Parts::Slots ShardedOptimizer::Parts::slots_of(const at::Tensor& share) const {
  Slots slots;
  if (auto* const state = internal::state_of(*optimizer, share, kind)) {
    kind.slots(*state, [&](const char* name, const at::Tensor& slot) {
      if (slot.defined()) slots.emplace_back(name, slot);
    });
  }
  return slots;
}

std::int64_t ShardedOptimizer::Parts::updates(const Group& of) const {
  if (of.chunks.empty()) return -1;
  // Every update updates all chunks of a group, so the count of the first one is that of all.
  const auto* const state = internal::state_of(*optimizer, of.chunks.front().share, kind);
  return state != nullptr ? kind.step(*state) : -1;
}

Attributes ShardedOptimizer::Parts::options_now(torch::optim::OptimizerOptions& of) const {
  return internal::values_of(kind, of, "sharded");
}

}}  // namespace holdfast::v0_2
