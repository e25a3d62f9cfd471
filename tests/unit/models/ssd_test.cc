// SSD300 on both backbones against numbers that MLPerf's and torchvision's originals gave: parameters, names,
// arithmetic, and in float64 one step.
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/utils.h>

#include <cmath>
#include <map>
#include <set>

#include "examples/models/ssd300.h"
#include "examples/models/ssd_anchors.h"
#include "examples/models/ssd_loss.h"
#include "examples/models/ssd_task.h"
#include "support/nightly.h"
#include "support/ssd_boxes.h"
#include "unit/models/on_one_thread.h"
#include "unit/models/oracle_fill.h"

namespace holdfast::test { namespace {

using Ssd300Net = OnOneThread<testing::Test>;

constexpr auto kResNet34 = SsdBackbone::resnet34;
constexpr auto kVgg = SsdBackbone::vgg16;

std::shared_ptr<Ssd300> bare_ssd(SsdBackbone backbone, ModelVariant variant = ModelVariant::torchvision) {
  return make_ssd300({.backbone = backbone, .variant = variant, .initialize = false});
}

double sum_of(const at::Tensor& x) { return x.detach().to(at::kDouble).sum().item<double>(); }
double number(const at::Tensor& x) { return x.item<double>(); }

double gradient_of(Ssd300& net, const std::string& name) {
  return number(net.named_parameters()[name].grad().norm());
}

void expect_first(const at::Tensor& values, const std::vector<double>& oracle, const std::string& what) {
  const at::Tensor row = values.detach().flatten();
  for (std::size_t i = 0; i < oracle.size(); ++i) {
    expect_close(number(row[static_cast<std::int64_t>(i)]), oracle[i], what + " " + std::to_string(i));
  }
}

SsdBoxes oracle_boxes(at::ScalarType type) {
  return make_ssd_boxes({{{.1, .15, .45, .6, 1}, {.5, .3, .95, .9, 17}, {.02, .7, .2, .98, 44}},
                         {{.2, .2, .8, .85, 80}, {.6, .05, .72, .18, 3}, {.3, .55, .42, .95, 25}}},
                        type);
}

TEST_F(Ssd300Net, OnResNet34AgreesWithMlperfInFloat64) {
  const auto net = bare_ssd(kResNet34);
  net->to(at::kDouble);
  oracle_fill(*net);
  expect_parameters(*net, 5084.14876, 527141.146);
  const SsdAnchors anchors = make_ssd_anchors(AnchorOrder::mlperf, at::kDouble);
  // Matched in float32, as the encoder does.
  const SsdTargets narrow = match_boxes(make_ssd_anchors(AnchorOrder::mlperf), oracle_boxes(at::kFloat));
  const SsdTargets targets{.boxes = narrow.boxes.to(at::kDouble), .classes = narrow.classes};
  EXPECT_TRUE((targets.classes > 0).sum(1).equal(at::tensor({std::int64_t{23}, std::int64_t{17}})));
  EXPECT_EQ(targets.classes.sum().item<std::int64_t>(), 1166);
  expect_close(sum_of(targets.boxes), 22459.5686, "sum of the matched boxes");

  const SsdOutput output = net->forward(oracle_pictures(2, 300));
  EXPECT_EQ(output.boxes.sizes(), (at::IntArrayRef{2, 4, 8732}));
  EXPECT_EQ(output.scores.sizes(), (at::IntArrayRef{2, 81, 8732}));
  expect_close(sum_of(output.boxes), 10884.0923, "sum of the boxes");
  expect_close(sum_of(output.boxes.abs()), 139792.585, "absolute sum of the boxes");
  expect_first(output.boxes, {-1.47513165, 2.75639246, 2.8981044, -1.12557572}, "box");
  expect_close(sum_of(output.scores), 15273.2959, "sum of the scores");
  expect_close(sum_of(output.scores.abs()), 3377608.71, "absolute sum of the scores");
  expect_first(output.scores, {-.38279626, 1.57712863, 1.74606918, -1.53072202}, "score");
  expect_statistics(*net, -3.20872406, 5347.29719);

  SsdTableTargets made_up = draw_ssd_table_targets(2, at::kDouble);
  made_up.counts = at::tensor({3.0, 7.0}, at::kDouble);
  const SsdLoss synthetic = ssd_table_loss(output, made_up);
  expect_close(number(synthetic.total), 66.1109731, "synthetic loss");
  EXPECT_EQ(number(synthetic.boxes), 0);

  const SsdLoss loss = ssd_loss(output, anchors, targets);
  expect_close(number(loss.boxes), 7.86378453, "loss of boxes");
  expect_close(number(loss.classes), 70.2684889, "loss of classes");
  expect_close(number(loss.total), 78.1322734, "loss");
  loss.total.backward();
  expect_close(gradient_norm(*net), 512.586908, "norm of the gradients");
  expect_close(gradient_of(*net, "model.layer1.0.weight"), 152.409044, "first gradient");
  expect_close(gradient_of(*net, "conf.5.weight"), 2.30283103, "last gradient");
}

TEST_F(Ssd300Net, OnVgg16AgreesWithTorchvisionInFloat64) {
  if (!nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 computes its 418 GFLOP";
  const auto net = bare_ssd(kVgg);
  net->to(at::kDouble);
  oracle_fill(*net);
  {
    const at::NoGradGuard no_grad;
    net->named_parameters()["backbone.scale_weight"].fill_(20);
  }
  expect_parameters(*net, 10387.3122, 735888.167);
  SsdTask task(net, SsdMode::matched);
  SsdBatch batch{.pictures = oracle_pictures(2, 300), .boxes = oracle_boxes(at::kFloat)};
  batch.boxes->corners = (batch.boxes->corners * 300).to(at::kDouble) / 300;  // pixels in float32
  const SsdOutput output = net->forward(batch.pictures);
  EXPECT_EQ(output.boxes.sizes(), (at::IntArrayRef{2, 8732, 4}));
  EXPECT_EQ(output.scores.sizes(), (at::IntArrayRef{2, 8732, 91}));
  expect_close(sum_of(output.boxes), 9522.15622, "sum of the boxes");
  expect_close(sum_of(output.boxes.abs()), 75095.9393, "absolute sum of the boxes");
  expect_close(sum_of(output.scores), 7829.05517, "sum of the scores");
  expect_close(sum_of(output.scores.abs()), 1841115.76, "absolute sum of the scores");
  const SsdLoss loss = task.loss(batch);
  expect_close(number(loss.boxes), 4.95077166, "loss of boxes");
  expect_close(number(loss.classes), 39.561891, "loss of classes");
  loss.total.backward();
  expect_close(gradient_norm(*net), 696.420439, "norm of the gradients");
  expect_close(gradient_of(*net, "backbone.scale_weight"), .00634919487, "gradient of the scale");
  expect_close(gradient_of(*net, "head.regression_head.module_list.5.weight"), 1.77311821, "last gradient");
}

TEST_F(Ssd300Net, HasTheParametersTheNamesAndTheArithmeticOfTheOriginals) {
  struct Original {
    SsdBackbone backbone;
    std::int64_t parameters;
    std::size_t tensors, keys;
    double forward_gmacs, train_gflops;
    std::map<std::size_t, std::string> names;
    std::set<std::string> some;
  };
  const Original originals[] = {
      {kResNet34,
       19'972'534,
       131,
       218,
       15.8621,
       94.749,
       {{0, "model.layer1.0.weight"}, {1, "model.layer1.1.weight"}, {130, "conf.5.bias"}},
       {"model.layer1.5.2.conv1.weight", "model.layer2.0.3.bn2.weight", "additional_blocks.4.2.bias",
        "model.layer2.0.0.downsample.1.running_var", "loc.0.weight"}},
      {kVgg,
       35'641'826,
       71,
       71,
       34.8582,
       208.838,
       {{0, "backbone.scale_weight"},
        {1, "backbone.features.0.weight"},
        {70, "head.regression_head.module_list.5.bias"}},
       {"backbone.extra.0.3.weight", "backbone.extra.0.7.1.weight", "backbone.extra.0.7.3.bias",
        "backbone.features.21.bias", "backbone.extra.4.2.weight",
        "head.classification_head.module_list.0.weight"}},
  };
  for (const Original& original : originals) {
    SCOPED_TRACE(std::string(word_of(original.backbone)));
    const auto net = bare_ssd(original.backbone);
    std::int64_t all = 0;
    std::vector<std::string> names;
    for (const auto& item : net->named_parameters()) {
      names.push_back(item.key());
      all += item.value().numel();
    }
    EXPECT_EQ(all, original.parameters);
    EXPECT_EQ(names.size(), original.tensors);
    for (const auto& [place, name] : original.names) EXPECT_EQ(names.at(place), name);
    for (const auto& item : net->named_buffers()) names.push_back(item.key());
    EXPECT_EQ(names.size(), original.keys);
    for (const std::string& name : original.some) EXPECT_THAT(names, testing::Contains(name));
    const ModelWork work = count_work(*net);
    EXPECT_NEAR(work.forward_macs / 1e9, original.forward_gmacs, 0.00006);
    EXPECT_NEAR(work.train_flops / 1e9, original.train_gflops, 0.0006);
  }
}

// Into another one by name, whatever the order, as from a file of Python's.
void load_by_name(Ssd300& to, const Ssd300& from) {
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> exported;  // in the order of the alphabet
  for (const auto& item : from.named_parameters()) exported[item.key()] = item.value();
  for (const auto& item : from.named_buffers()) exported[item.key()] = item.value();
  auto parameters = to.named_parameters();
  auto buffers = to.named_buffers();
  ASSERT_EQ(exported.size(), parameters.size() + buffers.size());
  for (const auto& [name, value] : exported) {
    at::Tensor* target = parameters.find(name);
    if (target == nullptr) target = buffers.find(name);
    ASSERT_NE(target, nullptr) << name;
    target->copy_(value);
  }
}

TEST_F(Ssd300Net, TakesAStateDictByNameAndComputesTheSameInChannelsLast) {
  const at::Tensor pictures = oracle_pictures(1, 300).to(at::kFloat);
  for (const SsdBackbone backbone : {kResNet34, kVgg}) {
    if (backbone == kVgg && !nightly()) continue;  // 140 GFLOP
    const auto net = bare_ssd(backbone);
    const auto other = bare_ssd(backbone);
    oracle_fill(*net);
    for (at::Tensor& parameter : other->parameters()) {
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
    }
    load_by_name(*other, *net);
    net->eval();
    other->eval();
    const at::NoGradGuard no_grad;
    const SsdOutput expected = net->forward(pictures);
    const SsdOutput output = other->forward(pictures.contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_LT(number((output.boxes - expected.boxes).norm() / expected.boxes.norm()), 1e-4);
    EXPECT_LT(number((output.scores - expected.scores).norm() / expected.scores.norm()), 1e-4);
  }
}

// Heads of the table's form: channels (anchor, column) for (column, anchor).
at::Tensor anchors_first(const at::Tensor& of_head, std::int64_t columns) {
  return of_head.unflatten(0, {columns, -1}).transpose(0, 1).flatten(0, 1);
}

TEST_F(Ssd300Net, OfTheTableReadsItsHeadsAnchorByAnchorAndHasOtherNorms) {
  const auto mlperf = bare_ssd(kResNet34);
  const auto table = bare_ssd(kResNet34, ModelVariant::table);
  oracle_fill(*mlperf);
  mlperf->eval();
  table->eval();
  const at::NoGradGuard no_grad;
  const auto source = mlperf->named_parameters();
  for (auto& item : table->named_parameters()) {
    const at::Tensor value = source[item.key()];
    const bool loc = item.key().starts_with("loc");
    const bool conf = item.key().starts_with("conf");
    item.value().copy_(loc || conf ? anchors_first(value, loc ? 4 : 81) : value);
  }
  int norms = 0;
  for (const auto& module : table->modules()) {
    auto* norm = module->as<torch::nn::BatchNorm2dImpl>();
    if (norm == nullptr) continue;
    EXPECT_EQ(norm->options.eps(), 1e-4);
    EXPECT_EQ(norm->options.momentum().value_or(0), 0.003);
    norm->options.eps(1e-5);
    ++norms;
  }
  EXPECT_EQ(norms, 29);
  const at::Tensor pictures = oracle_pictures(1, 300).to(at::kFloat);
  const SsdOutput one = mlperf->forward(pictures);
  const SsdOutput other = table->forward(pictures);
  EXPECT_LT(number((one.boxes - other.boxes).norm() / one.boxes.norm()), 1e-4);
  EXPECT_LT(number((one.scores - other.scores).norm() / one.scores.norm()), 1e-4);
}

TEST_F(Ssd300Net, StartsAsItsSourcesDo) {
  for (const auto& [backbone, variant] : {std::pair{kResNet34, ModelVariant::torchvision},
                                          {kResNet34, ModelVariant::table},
                                          {kVgg, ModelVariant::torchvision}}) {
    const bool table = variant == ModelVariant::table;
    torch::manual_seed(1);
    const auto net = make_ssd300({.backbone = backbone, .variant = variant});
    for (const auto& item : net->named_parameters()) {
      const at::Tensor value = item.value().detach();
      const std::string what = std::string(word_of(backbone)) + (table ? ", table: " : ": ") + item.key();
      const bool trunk =
          item.key().starts_with("model.") || item.key().starts_with("backbone.features.") ||
          (item.key().starts_with("backbone.extra.0.") && !item.key().starts_with("backbone.extra.0.7"));
      if (value.dim() == 4) {
        const double area = static_cast<double>(value.size(2) * value.size(3));
        const double in = static_cast<double>(value.size(1)) * area;
        const double out = static_cast<double>(value.size(0)) * area;
        const double expected = !trunk  ? std::sqrt(2 / (in + out))
                                : table ? std::sqrt(1 / in)
                                        : std::sqrt(2 / out);
        const double n = static_cast<double>(value.numel());
        EXPECT_NEAR(number(value.std()) / expected, 1, 5 / std::sqrt(2 * n)) << what;
        EXPECT_NEAR(number(value.mean()) / expected, 0, 5 / std::sqrt(n)) << what;
        if (!trunk) {
          EXPECT_LE(number(value.abs().max()), 1.0001 * std::sqrt(6 / (in + out))) << what;
        }
      } else if (item.key() == "backbone.scale_weight") {
        EXPECT_TRUE(value.equal(at::full({512}, 20.0)));
      } else if (item.key().ends_with("bias")) {
        EXPECT_EQ(number(value.abs().max()) > 0, !trunk && backbone == kResNet34 && !table) << what;
      } else {
        EXPECT_EQ(number(value.min()), 1) << what;  // of a norm
      }
    }
  }
}

}}  // namespace holdfast::test
