// The parts of Inceptions: convolutions with a batch norm and a ReLU, and blocks of branches. All branches of
// a block read the same input, and their outputs are joined along the channels.
//
//   InceptionBlock block(288, norms,
//                        {{{valid("branch3x3", 384, 3, 2)}},
//                         {{point("branch3x3dbl_1", 64), same("branch3x3dbl_2", 96, 3), …}},
//                         {.pool = Pool::halve_max}});
//
// Keys are those of the state dict, below the block; a dot in a key makes a container. Parameters are not
// drawn. Errors: none. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <vector>

#include "examples/models/batch_norm.h"
#include "examples/models/layers.h"
#include "examples/models/variant.h"

namespace holdfast { inline namespace v0_2 { namespace models {

// The batch norms of a whole net. All have an epsilon of 1e-3.
struct InceptionNorms {
  BatchNormKind kind = BatchNormKind::aten;
  // True: the scale is a buffer of ones under the same key instead of a parameter, so state dicts and kernels
  // find it.
  bool fixed_scale = false;
  double momentum = 0.1;
};
// The variant `table` has fixed scales and a momentum of 0.001.
InceptionNorms inception_norms(ModelVariant variant, BatchNormKind kind);

// Keys conv.weight and bn.….
class ConvNormImpl : public torch::nn::Module {
 public:
  ConvNormImpl(const ConvShape& shape, const InceptionNorms& norms);
  at::Tensor forward(const at::Tensor& x);

 private:
  BatchNormKind kind_;
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d norm_;
};
TORCH_MODULE(ConvNorm);

// The block sets `shape.in`.
struct KeyedConv {
  std::string key;
  ConvShape shape;
};
KeyedConv point(std::string key, std::int64_t out);                                  // 1x1
KeyedConv same(std::string key, std::int64_t out, torch::ExpandingArray<2> kernel);  // keeps the size
KeyedConv valid(std::string key, std::int64_t out, std::int64_t kernel, std::int64_t stride = 1);

enum class Pool {
  none,
  average,         // 3x3, keeps the size; zeros outside the picture count
  average_inside,  // 3x3, keeps the size; only values inside the picture count
  max,             // 3x3, keeps the size
  halve_max,       // 3x3 with stride 2
};
at::Tensor pooled(Pool pool, const at::Tensor& x);

struct Branch {
  std::vector<KeyedConv> chain = {};  // in sequence
  std::vector<KeyedConv> fork = {};   // side by side after the chain; their outputs are joined like branches
  Pool pool = Pool::none;             // before the chain
};

class InceptionBlockImpl : public torch::nn::Module {
 public:
  InceptionBlockImpl(std::int64_t in, const InceptionNorms& norms, const std::vector<Branch>& branches);
  at::Tensor forward(const at::Tensor& x);
  std::int64_t out_channels() const { return out_channels_; }

 private:
  struct Built {
    Pool pool;
    std::vector<ConvNorm> chain;
    std::vector<ConvNorm> fork;
  };
  ConvNorm add(KeyedConv conv, std::int64_t in, const InceptionNorms& norms);

  std::vector<Built> branches_;
  std::int64_t out_channels_ = 0;
};
TORCH_MODULE(InceptionBlock);

// UsageError unless pictures have at least `pixels` on each side.
void require_pixels(const char* net, const at::Tensor& pictures, std::int64_t pixels);

}}}  // namespace holdfast::v0_2::models
