#include "holdfast/train/captured_pass.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/train/internal/device_of.h"

namespace holdfast { inline namespace v0_2 {
namespace {

template <class Visit>
void for_each_parameter(const torch::optim::Optimizer& optimizer, const Visit& visit) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) visit(parameter);
  }
}

// Micro-batches without a graph after which a warning says so.
constexpr int kLongWithout = 50;

at::Tensor place_for(const at::Tensor& tensor, at::Device device) {
  const auto options = tensor.options().device(device);
  // Gaps and overlaps are not needed in a copy.
  if (!tensor.is_non_overlapping_and_dense()) return at::empty(tensor.sizes(), options);
  return at::empty_strided(tensor.sizes(), tensor.strides(), options);
}

}  // namespace

CapturedPass::CapturedPass(torch::optim::Optimizer& optimizer, GraphOptions options)
    : optimizer_(&optimizer), options_(std::move(options)) {
  if (options_.warm_up < 1) throw UsageError("a graph needs a warm-up of at least one micro-batch");
}

at::Tensor CapturedPass::run(const Batch& batch, bool first, const Pass& pass) {
  replayed_ = false;
  if (first) {
    // Before the pass, because a recorded one adds to gradients that exist.
    optimizer_->zero_grad();
    began_replayed_ = false;
    // Once per update: parameters do not move between its micro-batches.
    // A graph holds addresses; a parameter that has moved makes it useless.
    if (!inputs_layout_.empty() && places() != places_) forget();
  }
  if (!ready()) return pass(batch);

  std::vector<Layout> layout = layout_of(batch);
  in_a_row_ = layout == layout_ ? in_a_row_ + 1 : 1;
  layout_ = std::move(layout);
  const bool fits = layout_ == inputs_layout_;
  // Later micro-batches add to the gradients of the first one: to the recorded ones, or to those of an
  // ordinary pass.
  if (!first && !(fits && began_replayed_)) return ordinary(batch, pass);
  Recorded& wanted = recorded_[first ? 0 : 1];
  if (!fits || !wanted.graph) {
    // Warm-up passes let cuDNN choose kernels and allocators fill, which must not happen inside a capture.
    if (in_a_row_ <= options_.warm_up) return ordinary(batch, pass);
    record(batch, first, pass);
    if (given_up_) return pass(batch);
  }
  return replay(batch, wanted);
}

void CapturedPass::forget() {
  recorded_ = {};
  inputs_ = {};
  inputs_layout_.clear();
  gradients_.clear();
  began_replayed_ = false;
  in_a_row_ = 0;
}

bool CapturedPass::ready() {
  if (given_up_ || options_.device) return !given_up_;
  const at::Device device = internal::device_of(*optimizer_);
  if (const std::string why = why_no_graph(device); !why.empty()) {
    give_up(why);
    return false;
  }
  options_.device = make_cuda_graphs(device, options_.generators);
  return true;
}

void CapturedPass::give_up(const std::string& why) {
  given_up_ = true;
  forget();
  // One line: LibTorch's texts carry a backtrace behind the first.
  log_warning("forward and backward run without a graph: {}", why.substr(0, why.find('\n')));
}

at::Tensor CapturedPass::ordinary(const Batch& batch, const Pass& pass) {
  if (in_a_row_ <= options_.warm_up && ++without_ == kLongWithout + options_.warm_up) {
    log_warning(
        "forward and backward run without a graph: the last {} batches changed their shape too often; a "
        "graph needs {} of one shape in a row",
        without_, options_.warm_up + 1);
  }
  at::Tensor loss;
  options_.device->aside([&] { loss = pass(batch); });
  return loss;
}

void CapturedPass::record(const Batch& batch, bool first, const Pass& pass) {
  const std::vector<at::Tensor> before = gradients();
  // A capture that fails must leave the gradients as they were.
  try {
    if (first) make_inputs(batch);
    Recorded& made = recorded_[first ? 0 : 1];
    // The pass of later micro-batches adds to gradients that lie in the memory of the first graph, so both
    // share it.
    const DeviceGraph* const with = first ? nullptr : recorded_[0].graph.get();
    made.graph = options_.device->capture([this, pass, &made] { made.loss = pass(inputs_); }, with);
    const std::vector<at::Tensor> after = gradients();
    if (first) {
      gradients_ = after;
      places_ = places();
      inputs_layout_ = layout_;
    } else if (!std::equal(after.begin(), after.end(), gradients_.begin(), gradients_.end(),
                           [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); })) {
      // A pass that makes a new tensor of the sum cannot be replayed: put_back() would restore the old
      // gradient, without that micro-batch.
      throw Error("a gradient is not added up in its place");
    }
  } catch (const std::exception& error) {
    // The host's part of the pass has run: the gradients that it made have no values.
    put_back(before);
    give_up(std::string("the capture failed: ") + what_of(error));
  }
}

std::vector<const at::Tensor*> CapturedPass::tensors_of(const Batch& batch) {
  std::vector<const at::Tensor*> tensors = {&batch.inputs, &batch.targets};
  for (const at::Tensor& field : batch.fields) tensors.push_back(&field);
  return tensors;
}

std::vector<CapturedPass::Layout> CapturedPass::layout_of(const Batch& batch) {
  const std::vector<const at::Tensor*> tensors = tensors_of(batch);
  std::vector<Layout> layouts;
  layouts.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = *tensors[i];
    Layout& layout = layouts.emplace_back();
    // Equal tensors share one place: a data set often gives inputs twice, as a field of their own.
    while (!tensors[layout.first]->is_same(tensor)) ++layout.first;
    if (!tensor.defined()) continue;
    layout.sizes = tensor.sizes().vec();
    layout.strides = tensor.strides().vec();
    layout.type = tensor.scalar_type();
  }
  return layouts;
}

void CapturedPass::make_inputs(const Batch& batch) {
  const int in_a_row = in_a_row_;  // of the shape that is being recorded; forget() resets it
  forget();
  in_a_row_ = in_a_row;
  const at::Device device = internal::device_of(*optimizer_);
  const std::vector<const at::Tensor*> from = tensors_of(batch);
  std::vector<at::Tensor> places;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t first = layout_[i].first;
    if (first < i) {
      places.push_back(places[first]);
    } else {
      places.push_back(from[i]->defined() ? place_for(*from[i], device) : at::Tensor());
    }
  }
  inputs_ = batch;
  inputs_.inputs = places[0];
  inputs_.targets = places[1];
  std::copy(places.begin() + 2, places.end(), inputs_.fields.begin());
}

void CapturedPass::copy_inputs(const Batch& batch) {
  const at::NoGradGuard no_grad;
  const std::vector<const at::Tensor*> from = tensors_of(batch), to = tensors_of(inputs_);
  for (std::size_t i = 0; i < from.size(); ++i) {
    // Each place once; without waiting, because the replay is ordered behind the copy.
    if (from[i]->defined() && layout_[i].first == i) to[i]->copy_(*from[i], /*non_blocking=*/true);
  }
}

at::Tensor CapturedPass::replay(const Batch& batch, const Recorded& recorded) {
  copy_inputs(batch);
  recorded.graph->replay();
  // zero_grad() may have removed the gradients that the graph writes to.
  put_back(gradients_);
  replayed_ = true;
  if (without_ < kLongWithout + options_.warm_up) without_ = 0;  // so that the warning is logged once
  began_replayed_ = true;
  // The next replay overwrites the recorded loss.
  return recorded.loss.clone();
}

std::vector<CapturedPass::Place> CapturedPass::places() const {
  std::vector<Place> places;
  for_each_parameter(*optimizer_, [&](const at::Tensor& parameter) {
    places.push_back(
        {parameter.unsafeGetTensorImpl(), parameter.const_data_ptr(), parameter.requires_grad()});
  });
  return places;
}

std::vector<at::Tensor> CapturedPass::gradients() const {
  std::vector<at::Tensor> gradients;
  for_each_parameter(*optimizer_,
                     [&](const at::Tensor& parameter) { gradients.push_back(parameter.grad()); });
  return gradients;
}

void CapturedPass::put_back(const std::vector<at::Tensor>& gradients) {
  std::size_t next = 0;
  for_each_parameter(*optimizer_, [&](const at::Tensor& parameter) {
    const at::Tensor& gradient = gradients[next++];
    if (!parameter.grad().is_same(gradient)) parameter.mutable_grad() = gradient;
  });
}

}}  // namespace holdfast::v0_2
