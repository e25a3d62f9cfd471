#include "examples/models/inception_block.h"

#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool2d.h>

#include <memory>
#include <utility>

#include "examples/models/normalize.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace models {
namespace {

// A scale of ones costs nothing; batch norms without a scale have slower kernels or none.
class FixedScaleNorm final : public torch::nn::BatchNorm2dImpl {
 public:
  explicit FixedScaleNorm(const torch::nn::BatchNorm2dOptions& options)
      : torch::nn::BatchNorm2dImpl(options) {
    // A buffer instead of a parameter: it is stored, but no optimizer changes it.
    parameters_.erase("weight");
    weight.set_requires_grad(false);
    register_buffer("weight", weight);
  }
};

torch::nn::BatchNorm2d make_norm(std::int64_t channels, const InceptionNorms& norms) {
  // Epsilon as in the published models.
  const auto options = torch::nn::BatchNorm2dOptions(channels).eps(1e-3).momentum(norms.momentum);
  if (norms.fixed_scale) return {std::make_shared<FixedScaleNorm>(options)};
  return torch::nn::BatchNorm2d(options);
}

}  // namespace

InceptionNorms inception_norms(ModelVariant variant, BatchNormKind kind) {
  const bool table = variant == ModelVariant::table;
  // TensorFlow's decay of 0.999 is a momentum of 0.001 in torch.
  return {.kind = kind, .fixed_scale = table, .momentum = table ? 0.001 : 0.1};
}

ConvNormImpl::ConvNormImpl(const ConvShape& shape, const InceptionNorms& norms)
    : kind_(norms.kind),
      conv_(register_module("conv", undrawn_conv(shape))),
      norm_(register_module("bn", make_norm(shape.out, norms))) {}

at::Tensor ConvNormImpl::forward(const at::Tensor& x) {
  return normalize(kind_, norm_, conv_(x), {.relu = true}).main;
}

KeyedConv point(std::string key, std::int64_t out) { return {std::move(key), {.out = out}}; }

KeyedConv same(std::string key, std::int64_t out, torch::ExpandingArray<2> kernel) {
  const auto& [height, width] = *kernel;
  return {std::move(key), {.out = out, .kernel = kernel, .padding = {height / 2, width / 2}}};
}

KeyedConv valid(std::string key, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
  return {std::move(key), {.out = out, .kernel = kernel, .stride = stride}};
}

at::Tensor pooled(Pool pool, const at::Tensor& x) {
  switch (pool) {
    case Pool::none:
      return x;
    case Pool::average:
    case Pool::average_inside:
      // Whether the zeros of the padding count in the average is what tells the two.
      // torchvision counts them. timm and TensorFlow's SAME padding do not.
      return at::avg_pool2d(x, {3, 3}, {1, 1}, {1, 1}, /*ceil_mode=*/false, pool == Pool::average);
    case Pool::max:
      return at::max_pool2d(x, {3, 3}, {1, 1}, {1, 1});
    case Pool::halve_max:
      return at::max_pool2d(x, {3, 3}, {2, 2});
  }
  throw Error("a pool that does not exist");
}

InceptionBlockImpl::InceptionBlockImpl(std::int64_t in, const InceptionNorms& norms,
                                       const std::vector<Branch>& branches) {
  for (const Branch& branch : branches) {
    Built built{.pool = branch.pool, .chain = {}, .fork = {}};
    std::int64_t channels = in;
    for (const KeyedConv& conv : branch.chain) {
      built.chain.push_back(add(conv, channels, norms));
      channels = conv.shape.out;
    }
    for (const KeyedConv& conv : branch.fork) {
      built.fork.push_back(add(conv, channels, norms));
      out_channels_ += conv.shape.out;
    }
    if (branch.fork.empty()) out_channels_ += channels;
    branches_.push_back(std::move(built));
  }
}

ConvNorm InceptionBlockImpl::add(KeyedConv conv, std::int64_t in, const InceptionNorms& norms) {
  conv.shape.in = in;
  ConvNorm added(conv.shape, norms);
  // timm's keys have a container where a branch is a Sequential, as in branch1.0.
  const std::size_t dot = conv.key.find('.');
  if (dot == std::string::npos) return register_module(conv.key, added);
  const std::string container = conv.key.substr(0, dot);
  if (!named_children().contains(container)) {
    register_module(container, std::make_shared<torch::nn::Module>());
  }
  return named_children()[container]->register_module(conv.key.substr(dot + 1), added);
}

at::Tensor InceptionBlockImpl::forward(const at::Tensor& x) {
  std::vector<at::Tensor> outputs;
  for (Built& branch : branches_) {
    at::Tensor y = pooled(branch.pool, x);
    for (ConvNorm& conv : branch.chain) y = conv(y);
    for (ConvNorm& conv : branch.fork) outputs.push_back(conv(y));
    if (branch.fork.empty()) outputs.push_back(y);
  }
  return at::cat(outputs, 1);
}

void require_pixels(const char* net, const at::Tensor& pictures, std::int64_t pixels) {
  if (pictures.dim() == 4 && pictures.size(2) >= pixels && pictures.size(3) >= pixels) return;
  std::string given;
  for (const std::int64_t size : pictures.sizes()) given += (given.empty() ? "" : "x") + std::to_string(size);
  const std::string side = std::to_string(pixels);
  throw UsageError(std::string(net) + " needs pictures of at least " + side + "x" + side +
                   " pixels, [N, 3, H, W], not " + given);
}

}}}  // namespace holdfast::v0_2::models
