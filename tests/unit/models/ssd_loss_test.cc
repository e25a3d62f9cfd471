// The parts of SSD around its model, by hand: anchors, matching, mining, both losses, the table's synthetic
// step.
#include "examples/models/ssd_loss.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <functional>

#include "examples/models/ssd300.h"
#include "examples/models/ssd_anchors.h"
#include "examples/models/ssd_task.h"
#include "holdfast/base/error.h"
#include "support/ssd_boxes.h"

namespace holdfast::test { namespace {

double value_of(const at::Tensor& x) { return x.item<double>(); }

TEST(SsdAnchors, AreTheOriginalsInBothOrders) {
  const auto expect_row = [](const at::Tensor& rows, std::int64_t row, const std::vector<double>& oracle) {
    for (std::int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(value_of(rows[row][i]), oracle[static_cast<std::size_t>(i)], 1e-7) << row << ", " << i;
    }
  };
  const SsdAnchors mlperf = make_ssd_anchors(AnchorOrder::mlperf);
  ASSERT_EQ(mlperf.centers.sizes(), (at::IntArrayRef{8732, 4}));
  const std::vector<double> columns{4443.14667, 4443.14667, 1171.96768, 1171.96768};
  for (std::int64_t i = 0; i < 4; ++i) {
    const at::Tensor column = mlperf.centers.select(1, i).to(at::kDouble);
    EXPECT_NEAR(value_of(column.sum()), columns[static_cast<std::size_t>(i)], 1e-5);
  }
  expect_row(mlperf.centers, 0, {.0133333337, .0133333337, .07, .07});
  expect_row(mlperf.centers, 1, {.04, .0133333337, .07, .07});  // x moves first
  expect_row(mlperf.centers, 38 * 38, {.0133333337, .0133333337, std::sqrt(.07 * .15), std::sqrt(.07 * .15)});
  expect_row(mlperf.centers, 5776, {.0266666673, .0266666673, .15, .15});
  expect_row(mlperf.centers, 8731, {.5, .5, .615182877, 1});
  expect_row(mlperf.corners, 0,
             {.0133333337 - .035, .0133333337 - .035, .0133333337 + .035, .0133333337 + .035});

  const SsdAnchors torchvision = make_ssd_anchors(AnchorOrder::torchvision);
  EXPECT_NEAR(value_of(torchvision.corners.to(at::kDouble).sum()), 5332736, 0.5);  // known to seven digits
  // The last cell of ten lies beyond the picture: MLPerf moves it to the edge.
  expect_row(mlperf.centers, 7942 + 9, {1, 16 / 300., .33, .33});
  EXPECT_TRUE(torchvision.centers[7942 + 9 * 6].allclose(at::tensor({304.f, 16.f, 99.f, 99.f})));
  EXPECT_TRUE(torchvision.corners[0].allclose(at::tensor({-6.5f, -6.5f, 14.5f, 14.5f})));
  EXPECT_TRUE(torchvision.centers[4].allclose(at::tensor({12.f, 4.f, 21.f, 21.f})));  // the next cell
  // The same boxes: cell by cell against box by box.
  const at::Tensor first_map = mlperf.centers.narrow(0, 0, 5776).view({4, 38, 38, 4}).permute({1, 2, 0, 3});
  EXPECT_TRUE((first_map.reshape({5776, 4}) * 300).allclose(torchvision.centers.narrow(0, 0, 5776)));
  EXPECT_EQ(make_ssd_anchors(AnchorOrder::mlperf, at::kDouble).centers.dtype(), at::kDouble);
  EXPECT_THROW(make_ssd_anchors(AnchorOrder::mlperf, at::kHalf), UsageError);
}

// A handful of anchors in the unit of MLPerf.
SsdAnchors few_anchors(const std::vector<std::vector<double>>& corners,
                       AnchorOrder order = AnchorOrder::mlperf) {
  std::vector<at::Tensor> rows;
  for (const auto& row : corners) rows.push_back(at::tensor(row, at::kDouble));
  SsdAnchors anchors{.order = order, .unit = 1, .centers = {}, .corners = at::stack(rows)};
  const at::Tensor low = anchors.corners.narrow(1, 0, 2);
  const at::Tensor high = anchors.corners.narrow(1, 2, 2);
  anchors.centers = at::cat({(low + high) / 2, high - low}, 1);
  return anchors;
}

std::vector<std::int64_t> row_of(const at::Tensor& classes, std::int64_t picture = 0) {
  const at::Tensor row = classes[picture].contiguous();
  return {row.const_data_ptr<std::int64_t>(), row.const_data_ptr<std::int64_t>() + row.numel()};
}

using Classes = std::vector<std::int64_t>;

TEST(SsdMatching, TakesWhatOverlapsByHalfAndEachBoxsBest) {
  const std::vector<std::vector<double>> corners{
      {.5, .5, 1, 1}, {0, 0, .5, .5}, {0, 0, .5, .25}, {0, .25, .5, .625}, {.9, 0, 1, .1}};
  const SsdBoxes boxes = make_ssd_boxes({{{0, 0, .5, .5, 7}, {.88, .02, .9, .04, 9}}}, at::kDouble);
  // The second box overlaps no anchor: row 0 is its, as in the originals. The third anchor's IoU is exactly a
  // half.
  EXPECT_EQ(row_of(match_boxes(few_anchors(corners), boxes).classes), (Classes{9, 7, 0, 0, 0}));
  EXPECT_EQ(row_of(match_boxes(few_anchors(corners, AnchorOrder::torchvision), boxes).classes),
            (Classes{9, 7, 7, 0, 0}));
  const SsdTargets targets = match_boxes(few_anchors(corners), boxes);
  EXPECT_TRUE(targets.boxes[0][0].allclose(at::tensor({.89, .03, .02, .02}, at::kDouble)));
  EXPECT_TRUE(targets.boxes[0][1].allclose(at::tensor({.25, .25, .5, .5}, at::kDouble)));
  EXPECT_TRUE(targets.boxes[0][2].allclose(at::tensor({.25, .125, .5, .25}, at::kDouble)));  // itself
  // A far smaller overlap is enough for a box's best anchor.
  EXPECT_EQ(
      row_of(
          match_boxes(few_anchors(corners), make_ssd_boxes({{{.95, .05, 1, .9, 5}}}, at::kDouble)).classes),
      (Classes{5, 0, 0, 0, 0}));
}

TEST(SsdMatching, GivesAnAnchorThatTwoBoxesClaimToTheLater) {
  const SsdAnchors anchors = few_anchors({{0, 0, .5, .5}, {.6, .6, 1, 1}});
  const LabelledBox good{0, 0, .5, .45, 3};
  const LabelledBox poor{0, 0, .5, .05, 4};
  EXPECT_EQ(row_of(match_boxes(anchors, make_ssd_boxes({{good, poor}})).classes), (Classes{4, 0}));
  EXPECT_EQ(row_of(match_boxes(anchors, make_ssd_boxes({{poor, good}})).classes), (Classes{3, 0}));
  // Equal overlaps: an anchor that nobody claims goes to the first box, a box claims the first anchor.
  const SsdAnchors twins = few_anchors({{0, 0, .5, .5}, {0, 0, .5, .5}});
  EXPECT_EQ(row_of(match_boxes(twins, make_ssd_boxes({{good, {0, 0, .5, .45, 6}}})).classes),
            (Classes{6, 3}));
}

TEST(SsdMatching, LeavesPicturesWithoutBoxesAlone) {
  const SsdAnchors anchors = few_anchors({{0, 0, .5, .5}, {.5, .5, 1, 1}});
  const SsdTargets none = match_boxes(anchors, make_ssd_boxes({{}, {}}));
  EXPECT_EQ(none.boxes.sizes(), (at::IntArrayRef{2, 2, 4}));
  EXPECT_EQ(row_of(none.classes), (Classes{0, 0}));
  // Beside a picture with boxes, whose padding it is.
  const SsdTargets some = match_boxes(
      anchors, make_ssd_boxes({{{0, 0, .4, .5, 2}, {.5, .5, 1, 1, 8}}, {}, {{.5, .5, .9, 1, 1}}}));
  EXPECT_EQ(row_of(some.classes, 0), (Classes{2, 8}));
  EXPECT_EQ(row_of(some.classes, 1), (Classes{0, 0}));
  EXPECT_EQ(row_of(some.classes, 2), (Classes{0, 1}));
  EXPECT_TRUE(some.boxes[1].allclose(anchors.centers));
}

TEST(SsdMatching, FindsTheSameAnchorsInBothUnits) {
  const SsdBoxes boxes = make_ssd_boxes({{{.1, .2, .45, .6, 7}, {.55, .5, .9, .97, 9}}});
  const SsdTargets mlperf = match_boxes(make_ssd_anchors(AnchorOrder::mlperf), boxes);
  const SsdTargets torchvision = match_boxes(make_ssd_anchors(AnchorOrder::torchvision), boxes);
  EXPECT_GT(value_of((mlperf.classes > 0).sum()), 4);
  EXPECT_EQ(value_of(mlperf.classes.sum()), value_of(torchvision.classes.sum()));
}

TEST(SsdLoss, RanksEqualValuesInTheirOrder) {
  const at::Tensor values = at::tensor({1.f, 3.f, 1.f, 2.f, 3.f, 1.f}).unsqueeze(0);
  EXPECT_EQ(row_of(descending_ranks(values)), (Classes{3, 0, 4, 2, 1, 5}));
  const at::Tensor ranks = descending_ranks(at::zeros({2, 8732}));
  EXPECT_EQ(value_of(ranks[1][0]), 0);
  EXPECT_EQ(value_of(ranks[1][8731]), 8731);
}

// Scores whose cross entropy with class 0 is as given: [N, 2, A].
at::Tensor scores_with(const std::vector<double>& losses) {
  std::vector<double> other;
  for (const double loss : losses) other.push_back(std::log(std::expm1(loss)));
  const at::Tensor row = at::tensor(other, at::kDouble);
  return at::stack({at::zeros_like(row), row}).unsqueeze(0);
}

TEST(SsdLoss, MinesThreeNegativesForEachPositive) {
  const SsdAnchors anchors = few_anchors(
      {{0, 0, .5, .5}, {.5, .5, 1, 1}, {0, .5, .5, 1}, {.5, 0, 1, .5}, {.2, .2, .6, .6}, {.4, .4, .8, .8}});
  const SsdTargets targets = match_boxes(anchors, make_ssd_boxes({{{0, 0, .5, .4, 1}}}, at::kDouble));
  EXPECT_EQ(row_of(targets.classes), (Classes{1, 0, 0, 0, 0, 0}));
  // The positive is hard, and not mined for that. Of the negatives 0.5, 2, 1, 0.25, 4 the two least miss.
  const at::Tensor scores = scores_with({.05, .5, 2, 1, .25, 4});
  const at::Tensor boxes = at::zeros({1, 4, 6}, at::kDouble);
  const SsdLoss loss = ssd_loss({boxes, scores}, anchors, targets);
  EXPECT_NEAR(value_of(loss.classes), 7 - std::log(-std::expm1(-.05)), 1e-12);
  // Offsets 0, 10 · -0.05 / 0.5, 0, 5 log(0.8), by hand: 1 - 1/2 and |.| - 1/2.
  EXPECT_NEAR(value_of(loss.boxes), 0.5 + (-5 * std::log(.8) - .5), 1e-12);
  EXPECT_NEAR(value_of(loss.total), value_of(loss.boxes) + value_of(loss.classes), 1e-12);
  // The other layout, the same order of anchors: torchvision divides by all positives of the batch.
  SsdAnchors other = anchors;
  other.order = AnchorOrder::torchvision;
  const SsdOutput rows{boxes.transpose(1, 2).contiguous(), scores.transpose(1, 2).contiguous()};
  EXPECT_NEAR(value_of(ssd_loss(rows, other, targets).total), value_of(loss.total), 1e-12);
  // A picture without boxes counts half of a batch for MLPerf, nothing for torchvision.
  const SsdTargets two = match_boxes(anchors, make_ssd_boxes({{{0, 0, .5, .4, 1}}, {}}, at::kDouble));
  const auto twice = [](const SsdOutput& one) {
    return SsdOutput{at::cat({one.boxes, one.boxes}), at::cat({one.scores, one.scores})};
  };
  EXPECT_NEAR(value_of(ssd_loss(twice({boxes, scores}), anchors, two).total), value_of(loss.total) / 2,
              1e-12);
  EXPECT_NEAR(value_of(ssd_loss(twice(rows), other, two).total), value_of(loss.total), 1e-12);
  const SsdTargets none = match_boxes(anchors, make_ssd_boxes({{}}, at::kDouble));
  EXPECT_EQ(value_of(ssd_loss({boxes, scores}, anchors, none).total), 0);
  EXPECT_EQ(value_of(ssd_loss(rows, other, none).total), 0);
}

TEST(SsdLoss, OfPositivesCountsTwiceWhereNegativesRunOut) {
  const SsdAnchors anchors = few_anchors({{0, 0, .5, .5}, {.5, .5, 1, 1}});
  const SsdTargets targets = match_boxes(anchors, make_ssd_boxes({{{0, 0, .5, .5, 1}}}, at::kDouble));
  const SsdOutput output{at::zeros({1, 4, 2}, at::kDouble), scores_with({std::log(2.0), 3})};
  EXPECT_NEAR(value_of(ssd_loss(output, anchors, targets).total), 2 * std::log(2.0) + 3, 1e-12);
}

TEST(SsdLoss, IsComputedInFloat32WhateverAutocastMade) {
  torch::manual_seed(1);
  const SsdAnchors anchors = make_ssd_anchors(AnchorOrder::mlperf);
  const SsdTargets targets =
      match_boxes(anchors, make_ssd_boxes({{{.1, .1, .6, .7, 5}, {.3, .2, .9, .5, 80}}}));
  const SsdOutput half{(at::randn({1, 4, 8732}) * 3).to(at::kBFloat16),
                       (at::randn({1, 81, 8732}) * 8).to(at::kBFloat16)};
  const SsdOutput wide{half.boxes.to(at::kFloat), half.scores.to(at::kFloat)};
  const SsdTableTargets made_up = draw_ssd_table_targets(1, at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const SsdLoss matched = ssd_loss(half, anchors, targets);
  const SsdLoss synthetic = ssd_table_loss(half, made_up);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(matched.total.dtype(), at::kFloat);
  EXPECT_EQ(value_of(matched.total), value_of(ssd_loss(wide, anchors, targets).total));
  EXPECT_EQ(value_of(matched.total), value_of(ssd_loss(half, anchors, targets).total));
  EXPECT_EQ(value_of(synthetic.total), value_of(ssd_table_loss(wide, made_up).total));
}

TEST(SsdLoss, OfTheTableDividesByRealCountsAndMinesByWholeOnes) {
  const at::Tensor scores = scores_with({.5, 2, 1, .25, 4, 3, .125, 6});
  SsdTableTargets targets{.boxes = at::full({1, 8, 4}, .5, at::kDouble),
                          .classes = at::full({1, 8}, .999, at::kDouble),
                          .counts = at::tensor({1.75}, at::kDouble)};
  const SsdOutput output{at::zeros({1, 4, 8}, at::kDouble), scores};
  EXPECT_NEAR(value_of(ssd_table_loss(output, targets).total), (6 + 4 + 3) / 1.75, 1e-12);
  // Given positives, boxes are offsets already.
  targets.classes[0][3] = 1.5;
  const SsdLoss loss = ssd_table_loss(output, targets);
  EXPECT_NEAR(value_of(loss.boxes), 4 * .125 / 1.75, 1e-12);
  EXPECT_NEAR(value_of(loss.classes), (13 - std::log(-std::expm1(-.25))) / 1.75, 1e-12);
}

TEST(SsdTask, OfTheTableDrawsAsTheHarnessDoes) {
  torch::manual_seed(1);
  const SsdTableTargets targets = draw_ssd_table_targets(400, at::kFloat);
  EXPECT_EQ(targets.boxes.sizes(), (at::IntArrayRef{400, 8732, 4}));
  EXPECT_EQ(value_of(targets.classes.to(at::kLong).max()), 0);
  EXPECT_NEAR(value_of(targets.counts.mean()), 5.5, 0.6);
  EXPECT_GE(value_of(targets.counts.min()), 1);
  EXPECT_LT(value_of(targets.counts.max()), 10);
  std::vector<at::Tensor> draws;
  for (int i = 0; i < 400; ++i) draws.push_back(draw_color_jitter(at::kDouble));
  const at::Tensor all = at::stack(draws);
  const std::vector<std::pair<double, double>> ranges{{-.125, .125}, {.5, 1.5}, {.5, 1.5}, {-.05, .05}};
  for (std::int64_t i = 0; i < 4; ++i) {
    const auto [low, high] = ranges[static_cast<std::size_t>(i)];
    const at::Tensor one = all.select(1, i);
    EXPECT_GE(value_of(one.min()), low);
    EXPECT_LE(value_of(one.max()), high);
    EXPECT_GT(value_of(one.max()) - value_of(one.min()), 0.95 * (high - low));
  }
}

TEST(SsdTask, JittersColorsAsInHsv) {
  const auto picture = [](double red, double green, double blue) {
    return at::tensor({red, green, blue}, at::kDouble).view({1, 3, 1, 1});
  };
  const auto jittered = [](const at::Tensor& x, double brightness, double contrast, double saturation,
                           double hue) {
    return jitter_colors(x, at::tensor({brightness, contrast, saturation, hue}, at::kDouble));
  };
  const at::Tensor x = picture(.8, .2, .4);
  EXPECT_TRUE(jittered(x, 0, 1, 1, 0).allclose(x));
  EXPECT_TRUE(jittered(x, .1, 1, 1, 0).allclose(x + .1));
  EXPECT_TRUE(jittered(x, 0, 1, .5, 0).allclose(picture(.8, .5, .6)));
  EXPECT_TRUE(jittered(x, 0, 1, 1.5, 0).allclose(picture(.8, 0, .8 - .4 * 4 / 3)));  // no more than saturated
  EXPECT_TRUE(jittered(x, 0, 1, 1, 1. / 3).allclose(picture(.4, .8, .2)));  // red to green, all channels on
  EXPECT_TRUE(jittered(x, 0, 1, 1, -1. / 3).allclose(picture(.2, .4, .8)));
  EXPECT_TRUE(jittered(x, 0, 1, 1, 1. / 6).allclose(picture(.8, .6, .2)));
  const at::Tensor grey = picture(.3, .3, .3);
  EXPECT_TRUE(jittered(grey, 0, 1, 1.4, .04).allclose(grey));
  const at::Tensor dark = picture(-.1, -.1, -.1);
  EXPECT_TRUE(jittered(dark, 0, 1, 1.4, .04).allclose(dark));
  // Contrast: about the means of each picture and channel.
  const at::Tensor two = at::tensor({.2, .4}, at::kDouble).view({1, 1, 1, 2}).expand({1, 3, 1, 2});
  EXPECT_TRUE(jittered(two, 0, 1.5, 1, 0)[0][0][0].allclose(at::tensor({.15, .45}, at::kDouble)));
  const at::Tensor last = at::rand({2, 3, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor jitter = draw_color_jitter(at::kFloat);
  EXPECT_TRUE(jitter_colors(last, jitter).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(jitter_colors(last, jitter).allclose(jitter_colors(last.contiguous(), jitter)));
  EXPECT_TRUE(normalize_ssd_pictures(SsdBackbone::resnet34, picture(.485 + .229, .456, .406 - .225))
                  .allclose(picture(1, 0, -1)));
  EXPECT_TRUE(normalize_ssd_pictures(SsdBackbone::vgg16, picture(.48235 + 1. / 255, .45882, .40784))
                  .allclose(picture(1, 0, 0), 1e-9, 1e-9));
}

// Answers at once, by the pictures' mean.
class QuickSsd final : public Ssd300 {
 public:
  QuickSsd() : Ssd300({.num_classes = 81}) {}
  SsdOutput forward(const at::Tensor& pictures) override {
    shown = pictures;
    const at::Tensor mean = pictures.mean({1, 2, 3}).view({-1, 1, 1});
    return {mean.expand({-1, 4, kSsdAnchors}),
            mean * at::arange(81).view({1, 81, 1}).expand({-1, -1, kSsdAnchors})};
  }
  void initialize() override {}
  at::Tensor shown;
};

TEST(SsdTask, OfTheTableDrawsColorsAndTargetsAnewUnlessTheyAreGiven) {
  torch::manual_seed(1);
  const auto net = std::make_shared<QuickSsd>();
  SsdTask task(net, SsdMode::table);
  SsdBatch batch = task.synthetic_batch(2, at::kCPU);
  EXPECT_EQ(batch.pictures.sizes(), (at::IntArrayRef{2, 3, 300, 300}));
  EXPECT_GE(value_of(batch.pictures.min()), 0);
  const double first = value_of(task.loss(batch).total);
  EXPECT_NE(first, value_of(task.loss(batch).total));
  batch.jitter = draw_color_jitter(at::kFloat);
  const double colored = value_of(task.loss(batch).total);
  const at::Tensor shown = net->shown;
  EXPECT_TRUE(shown.equal(
      normalize_ssd_pictures(SsdBackbone::resnet34, jitter_colors(batch.pictures, *batch.jitter))));
  EXPECT_NE(colored, value_of(task.loss(batch).total));  // other targets
  EXPECT_TRUE(shown.equal(net->shown));
  batch.targets = draw_ssd_table_targets(2, at::kFloat);
  const SsdLoss given = task.loss(batch);
  EXPECT_EQ(value_of(given.total), value_of(task.loss(batch).total));
  EXPECT_EQ(value_of(given.total), value_of(ssd_table_loss(net->forward(shown), *batch.targets).total));
}

TEST(SsdTask, MatchesTheBoxesOfLabelledPictures) {
  torch::manual_seed(1);
  const auto net = std::make_shared<QuickSsd>();
  SsdTask task(net, SsdMode::matched);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const SsdBatch batch = task.synthetic_batch(3, type);
    ASSERT_TRUE(batch.boxes);
    EXPECT_GE(value_of((batch.boxes->classes > 0).sum(1).min()), 1);
    EXPECT_EQ(value_of(batch.boxes->classes.min()), 0);  // not all have eight
    EXPECT_LT(value_of(batch.boxes->classes.max()), 81);
    const at::Tensor& corners = batch.boxes->corners;
    EXPECT_GT(value_of((corners.narrow(2, 2, 2) - corners.narrow(2, 0, 2)).min()), 0.04);
    EXPECT_LE(value_of(corners.max()), 1);
    const SsdLoss loss = task.loss(batch);
    EXPECT_EQ(loss.total.scalar_type(), type);
    EXPECT_TRUE(net->shown.equal(batch.pictures));
    const SsdAnchors anchors = make_ssd_anchors(AnchorOrder::mlperf, type);
    EXPECT_EQ(
        value_of(loss.total),
        value_of(ssd_loss(net->forward(batch.pictures), anchors, match_boxes(anchors, *batch.boxes)).total));
  }
}

std::string said(const std::function<void()>& act) {
  try {
    act();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Ssd300, SaysInOneLineWhatItCannotDo) {
  EXPECT_EQ(said([] { make_ssd300({.num_classes = 1}); }),
            "an SSD300 needs the background and at least one class more, num_classes 2, not 1");
  EXPECT_EQ(said([] { make_ssd300({.backbone = SsdBackbone::vgg16, .variant = ModelVariant::table}); }),
            "the table's SSD300 has the backbone resnet34: there is no variant 'table' of vgg16");
  EXPECT_EQ(said([] { make_ssd300({.backbone = SsdBackbone::vgg16, .batch_norm = BatchNormKind::fused}); }),
            "an SSD300 with the backbone vgg16 has no batch norms: leave them at aten, not fused");
  const auto net = make_ssd300({.initialize = false});
  EXPECT_EQ(
      said([&] {
        net->forward(at::zeros({1, 3, 224, 224}));
      }),
      "SSD300 takes pictures of [N, 3, 300, 300], for its anchors are made for them, not [1, 3, 224, 224]");
  const SsdOutput output{at::zeros({1, 4, 10}), at::zeros({1, 81, 10})};
  EXPECT_EQ(said([&] { ssd_table_loss(output, draw_ssd_table_targets(1, at::kFloat)); }),
            "SSD's output and targets do not fit together: boxes [1, 4, 10] and scores [1, 81, 10] for "
            "target boxes "
            "[1, 8732, 4] and target classes [1, 8732]");
  SsdTask table(net, SsdMode::table);
  SsdTask matched(net, SsdMode::matched);
  EXPECT_THAT(said([&] {
                matched.loss({.pictures = at::zeros({1, 3, 300, 300})});
              }),
              testing::HasSubstr("fill SsdBatch::boxes"));
  EXPECT_THAT(said([&] { table.loss(matched.synthetic_batch(1, at::kCPU)); }),
              testing::HasSubstr("is for SsdMode::matched"));
  EXPECT_THAT(said([] {
                SsdTask(make_ssd300({.backbone = SsdBackbone::vgg16, .initialize = false}), SsdMode::table);
              }),
              testing::HasSubstr("take SsdMode::matched"));
}

}}  // namespace holdfast::test
