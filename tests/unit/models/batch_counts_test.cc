// A model's batch norms count their batches together, in one operator, with the bits of a model whose norms
// count one by one.
#include "holdfast/kernels/batch_counts.h"

#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <optional>
#include <vector>

#include "examples/models/resnet.h"
#include "support/operator_counts.h"

namespace holdfast::model_batch_counts { namespace {

struct Result {
  at::Tensor y;
  std::vector<at::Tensor> buffers;
  std::int64_t additions = 0;  // of counters
};

Result forward(BatchNormKind kind, bool together) {
  torch::manual_seed(5);
  ResNet net(ResNetOptions{.num_classes = 3, .stem = Stem::cifar, .width = 8, .batch_norm = kind});
  for (auto& parameter : net->parameters()) {
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  }
  const at::Tensor pictures = at::randn({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  Result result;
  for (int pass = 0; pass < 2; ++pass) {
    const test::OperatorCounts operators;
    std::optional<BatchCounts> counts;
    if (together) counts.emplace();
    result.y = net->forward(pictures);
    if (together) counts->add();
    result.additions = operators.outermost("aten::_foreach_add_");
  }
  for (const at::Tensor& buffer : net->buffers()) result.buffers.push_back(buffer);
  return result;
}

TEST(ModelBatchCounts, AreOneOperatorWithTheSameBits) {
  for (const BatchNormKind kind : {BatchNormKind::aten, BatchNormKind::fused}) {
    const Result alone = forward(kind, false), together = forward(kind, true);
    EXPECT_EQ(alone.additions, 0);
    EXPECT_EQ(together.additions, 1) << "53 norms";
    EXPECT_TRUE(together.y.equal(alone.y)) << word_of(kind);
    ASSERT_EQ(together.buffers.size(), alone.buffers.size());
    for (std::size_t i = 0; i < alone.buffers.size(); ++i) {
      EXPECT_TRUE(together.buffers[i].equal(alone.buffers[i])) << i;
    }
  }
}

}}  // namespace holdfast::model_batch_counts
