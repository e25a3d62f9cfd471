#include "holdfast/state/internal/gradient_watch.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace holdfast { inline namespace v0_2 { namespace internal {

bool dense_gradient(const at::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == at::kStrided && !gradient.is_inference();
}

void GradientWatch::carry(std::size_t owner) {
  if (owner >= fates_.size()) fates_.resize(owner + 1, Fate::unknown);
  fates_[owner] = Fate::carried;
  carries_ = true;
}

// zero_grad(false) and a backward pass change it twice. One change that leaves more than zeros is a backward
// pass onto what was there before.
GradientWatch::Fate GradientWatch::now(const Seen& then, const at::Tensor& gradient) const {
  if (then.memory._unsafe_get_target() != gradient.storage().unsafeGetStorageImpl()) return Fate::dropped;
  const bool once = static_cast<std::uint32_t>(gradient._version()) == then.version + 1;
  return once && gradient.count_nonzero().item<std::int64_t>() > 0 ? Fate::carried : Fate::kept;
}

void GradientWatch::look(const Owners& owners) {
  const at::NoGradGuard no_grad;
  fates_.resize(std::max(fates_.size(), owners.size()), Fate::unknown);
  std::unordered_map<const void*, Seen> seen;
  for (std::size_t owner = 0; owner < owners.size(); ++owner) {
    Fate fate = Fate::unknown;
    for (const at::Tensor& parameter : owners[owner]) {
      const at::Tensor& gradient = parameter.grad();
      const void* const key = parameter.unsafeGetTensorImpl();
      if (const auto then = seen_.find(key); then != seen_.end()) {
        fate = std::max(fate, dense_gradient(gradient) ? now(then->second, gradient) : Fate::dropped);
      }
      if (!dense_gradient(gradient)) continue;
      seen.insert_or_assign(key, Seen{gradient.storage().getWeakStorageImpl(),
                                      static_cast<std::uint32_t>(gradient._version())});
    }
    if (fate == Fate::carried) carry(owner);
    if (fate != Fate::unknown && fates_[owner] != Fate::carried) fates_[owner] = fate;
  }
  seen_ = std::move(seen);
  if (looks_ > 0 && --looks_ == 0) seen_.clear();
}

void GradientWatch::loaded(const Owners& owners) {
  seen_.clear();
  looks_ = 4;
  look(owners);
}

}}}  // namespace holdfast::v0_2::internal
