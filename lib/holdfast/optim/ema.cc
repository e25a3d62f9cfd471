#include "holdfast/optim/ema.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/full.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/state/weights_aside.h"

namespace holdfast { inline namespace v0_2 {

Ema::Ema(torch::nn::Module& module, const EmaOptions& options) : options_(options) {
  if (!(options.decay >= 0 && options.decay <= 1)) throw UsageError("an Ema's decay must be 0...1");
  const at::NoGradGuard no_grad;
  std::set<const at::TensorImpl*> seen;  // tied weights are averaged once
  const auto take = [&](const std::string& name, const at::Tensor& tensor, bool averaged) {
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) return;
    tensors_.push_back({name, tensor, tensor.detach().clone(), averaged});
  };
  for (const auto& parameter : module.named_parameters()) {
    // Integers have no average; their newest value is kept.
    take(parameter.key(), parameter.value(), parameter.value().is_floating_point());
  }
  for (const auto& buffer : module.named_buffers()) take(buffer.key(), buffer.value(), false);
  group();
}

void Ema::group() {
  groups_.clear();
  rest_.clear();
  for (const Named& tensor : tensors_) {
    std::vector<Group>& groups = tensor.averaged ? groups_ : rest_;
    const auto fits = [&](const Group& group) {
      return group.weights.front().device() == tensor.weight.device() &&
             group.weights.front().scalar_type() == tensor.weight.scalar_type();
    };
    auto place = std::find_if(groups.begin(), groups.end(), fits);
    if (place == groups.end()) place = groups.insert(place, Group{});
    place->weights.push_back(tensor.weight);
    place->averages.push_back(tensor.average);
  }
}

double Ema::decay(std::int64_t n) const {
  const auto count = static_cast<double>(n);
  // As TensorFlow's ExponentialMovingAverage: at first the average follows quickly.
  return options_.warm_up ? std::min(options_.decay, (1 + count) / (10 + count)) : options_.decay;
}

void Ema::copy_rest() {
  for (Group& group : rest_) at::_foreach_copy_(group.averages, group.weights);
}

void Ema::update() {
  if (swapped_) throw UsageError("an Ema cannot be updated while it is swapped in");
  // Once the count lies on the device, both kinds of update count there.
  if (device_updates_.defined()) return update(at::full({1}, 0.0, device_updates_.options()));
  const at::NoGradGuard no_grad;
  for (Group& group : groups_) at::_foreach_lerp_(group.averages, group.weights, 1 - decay(updates_));
  copy_rest();
  ++updates_;
}

void Ema::update(const at::Tensor& found_inf) {
  if (found_inf.device().is_cpu()) {
    // On the host the answer is known without waiting.
    if (found_inf.item().toDouble() == 0) update();
    return;
  }
  if (swapped_) throw UsageError("an Ema cannot be updated while it is swapped in");
  const at::NoGradGuard no_grad;
  if (!device_updates_.defined()) {
    // In double: a float counts exactly only up to 16.7 million updates.
    device_updates_ = at::full({}, static_cast<double>(updates_), found_inf.options().dtype(at::kDouble));
  }
  const at::Tensor happened = found_inf.reshape({}).eq(0).to(at::kDouble);
  at::Tensor part;
  // Young averages follow quickly, as in decay().
  if (options_.warm_up) {
    part = 1 - at::clamp_max((1 + device_updates_) / (10 + device_updates_), options_.decay);
  } else {
    part = at::full({}, 1 - options_.decay, device_updates_.options());
  }
  // A factor of 0 skips the update on the device, so the host need not know.
  part = part * happened;
  for (Group& group : groups_) {
    const at::Tensor& first = group.weights.front();
    // Not _foreach_lerp_(): its weight as a number would have to be known on the host.
    auto moves = at::_foreach_sub(group.weights, group.averages);
    at::_foreach_mul_(moves, part.to(first.options()));
    at::_foreach_add_(group.averages, moves);
  }
  // Buffers are copied even if the update was skipped: their statistics are as good as those of other passes.
  copy_rest();
  device_updates_.add_(happened);
}

void Ema::restart() {
  if (swapped_) throw UsageError("an Ema cannot begin again while it is swapped in");
  const at::NoGradGuard no_grad;
  for (Named& tensor : tensors_) tensor.average.copy_(tensor.weight);
  updates_ = 0;
  device_updates_.reset();
}

std::int64_t Ema::updates() const {
  return device_updates_.defined() ? static_cast<std::int64_t>(device_updates_.item<double>()) : updates_;
}

void Ema::exchange() {
  const at::NoGradGuard no_grad;
  for (Named& tensor : tensors_) {
    const at::Tensor weight = tensor.weight.detach();
    // Exchanges storages instead of values: no copy, and the optimizer still knows the tensors.
    tensor.weight.set_data(tensor.average);
    tensor.average = weight;
  }
  // The tensors now hold each other's memory, so the groups have to be collected anew.
  group();
}

Ema::Swapped::Swapped(Ema& ema) : ema_(&ema) {
  for (const Named& tensor : ema.tensors_) {
    if (is_aside(tensor.weight)) throw UsageError("of one module, an Ema can be swapped in once at a time");
  }
  ema.exchange();
  for (const Named& tensor : ema.tensors_) put_aside(tensor.weight, tensor.average);
  ema.swapped_ = true;
}
Ema::Swapped::~Swapped() {
  for (const Named& tensor : ema_->tensors_) put_back(tensor.weight);
  ema_->exchange();
  ema_->swapped_ = false;
}

void Ema::save(StateWriter& out) const {
  out.option("decay", options_.decay);
  // `updates` decides the decay of the warm-up, so it is a part of the state.
  out.option("warm_up", options_.warm_up);
  out.put("updates", updates());
  // While it is swapped in, the module has the averages, and a save takes the weights (weights_aside.h).
  for (const Named& tensor : tensors_) {
    out.put_tensor(tensor.name, swapped_ ? tensor.weight.detach() : tensor.average);
  }
}

void Ema::load(const StateReader& in) {
  if (swapped_) throw UsageError("no resuming while an Ema is swapped in");
  const std::int64_t updates = in.get_int("updates");
  if (updates < 0) throw RefusedError("the recorded updates of the average are " + std::to_string(updates));
  // Reads all before it changes any: a refused checkpoint leaves the averages as they were.
  std::vector<at::Tensor> loaded;
  for (const Named& tensor : tensors_) {
    loaded.push_back(in.get_tensor(tensor.name));
    if (loaded.back().sizes() != tensor.average.sizes()) {
      throw RefusedError("the recorded average of '" + tensor.name + "' is of another shape");
    }
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < loaded.size(); ++i) tensors_[i].average.copy_(loaded[i]);
  updates_ = updates;
  if (device_updates_.defined()) device_updates_.fill_(static_cast<double>(updates));
}

}}  // namespace holdfast::v0_2
