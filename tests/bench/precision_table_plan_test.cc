// Which rows bench_precision_table plans, and with which batches: nothing of Torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../../bench/precision_table/catalogue.h"
#include "../../bench/precision_table/table.h"
#include "holdfast/base/error.h"

namespace holdfast::test { namespace {

using bench::Choice;
using testing::ElementsAre;
using testing::SizeIs;

TEST(PrecisionTable, TakesThePublishedBatchSizes) {
  using bench::batch_of;
  EXPECT_EQ(batch_of("resnet50", "fp32", 32, 1), 192);
  EXPECT_EQ(batch_of("resnet50", "fp16", 32, 1), 384);
  EXPECT_EQ(batch_of("resnet50", "tf32", 40, 1), 224);
  EXPECT_EQ(batch_of("resnet50", "bf16", 40, 1), 448);
  EXPECT_EQ(batch_of("resnet152", "fp32", 32, 1), 96);
  EXPECT_EQ(batch_of("resnet152", "fp16", 32, 1), 192);
  EXPECT_EQ(batch_of("resnet152", "tf32", 40, 1), 112);
  EXPECT_EQ(batch_of("resnet152", "fp16", 40, 1), 200);
  EXPECT_EQ(batch_of("vgg16", "fp32", 32, 1), 192);
  EXPECT_EQ(batch_of("vgg16", "fp16", 40, 1), 448);
  EXPECT_EQ(batch_of("alexnet", "fp32", 32, 1), 1536);
  EXPECT_EQ(batch_of("alexnet", "fp16", 32, 1), 3072);
  EXPECT_EQ(batch_of("alexnet", "tf32", 40, 1), 1792);
  EXPECT_EQ(batch_of("alexnet", "fp16", 40, 1), 3584);
  EXPECT_EQ(batch_of("inception3", "fp32", 32, 1), 192);
  EXPECT_EQ(batch_of("inception3", "fp16", 40, 1), 360);
  EXPECT_EQ(batch_of("inception4", "tf32", 40, 1), 56);
  EXPECT_EQ(batch_of("ssd300", "fp16", 32, 1), 192);
  EXPECT_EQ(batch_of("bert-128", "fp32", 32, 1), 32);
  EXPECT_EQ(batch_of("bert-512", "fp16", 40, 1), 16);
  EXPECT_EQ(batch_of("bert-512", "fp16", 40, 0.001), 1);
  EXPECT_EQ(batch_of("alexnet", "fp16", 40, 1.0 / 64), 56);
  EXPECT_EQ(batch_of("resnet152", "fp32", 40, 0.001), 2);  // a batch norm needs two
  EXPECT_THROW(batch_of("lenet", "fp32", 40, 1), UsageError);
}

Choice everything() {
  Choice choice{.rows = {},
                .models = {},
                .precisions = {"fp32", "tf32", "fp16", "bf16"},
                .layouts = {"nchw", "nhwc"},
                .modes = {"eager", "graph"}};
  for (const bench::Kind& kind : bench::kinds()) {
    if (kind.in_table) choice.models.push_back(kind.name);
  }
  return choice;
}

TEST(PrecisionTable, PlansThePublishedRowsOnceByDefault) {
  const auto names_on = [](bool gpu) {
    Choice choice = everything();
    choice.rows = bench::default_rows(gpu);
    std::set<std::string> names;
    for (const auto& cell : planned(choice)) names.insert(name_of(cell));
    return names;
  };
  const std::set<std::string> gpu = names_on(true), cpu = names_on(false);
  EXPECT_THAT(gpu, SizeIs(2 * 9));
  EXPECT_TRUE(gpu.contains("resnet50/fp16/nhwc/graph"));
  EXPECT_TRUE(gpu.contains("ssd300/tf32/nchw/graph"));
  EXPECT_TRUE(gpu.contains("bert-512/tf32/graph/x16"));
  EXPECT_THAT(cpu, SizeIs(2 * 9));
  EXPECT_TRUE(cpu.contains("vgg16/fp32/nchw/eager"));
  EXPECT_TRUE(cpu.contains("bert-128/fp16/eager/x16"));
}

TEST(PrecisionTable, PlansEveryCombination) {
  const auto cells = planned(everything());
  std::set<std::string> different;
  for (const auto& cell : cells) different.insert(name_of(cell));
  EXPECT_THAT(cells, SizeIs(7 * 16 + 2 * 16));  // BERT has no layouts, but two accumulations
  EXPECT_THAT(different, SizeIs(cells.size()));
  EXPECT_TRUE(different.contains("ssd300/bf16/nhwc/graph"));
  EXPECT_TRUE(different.contains("bert-512/fp16/eager/x16"));
  EXPECT_TRUE(different.contains("bert-512/fp16/eager/x1"));
}

TEST(PrecisionTable, ChoosesRowsByWords) {
  const auto chosen = [](std::vector<std::string> rows) {
    Choice choice = everything();
    choice.rows = std::move(rows);
    std::vector<std::string> names;
    for (const auto& cell : planned(choice)) names.push_back(name_of(cell));
    return names;
  };
  EXPECT_THAT(chosen({"vgg16/fp16/nhwc/graph"}), ElementsAre("vgg16/fp16/nhwc/graph"));
  EXPECT_THAT(chosen({"eager/nchw/fp32"}), SizeIs(7));
  EXPECT_THAT(chosen({"bert/fp32/eager/x1"}),
              ElementsAre("bert-128/fp32/eager/x1", "bert-512/fp32/eager/x1"));
  EXPECT_THAT(chosen({"bert-512/tf32/graph", "alexnet/tf32/nhwc"}),
              ElementsAre("alexnet/tf32/nhwc/eager", "alexnet/tf32/nhwc/graph", "bert-512/tf32/graph/x1",
                          "bert-512/tf32/graph/x16"));  // in the table's order
  for (const char* wrong : {"resnet51", "bert/nhwc", "resnet50/x16", "", "fp32/fp16"}) {
    EXPECT_THROW(chosen({wrong}), UsageError) << wrong;
  }
}

TEST(PrecisionTable, HasRowsBesideTheTableWhereTheyAreNamed) {
  Choice choice = everything();
  const auto chosen = [&](std::vector<std::string> rows) {
    choice.rows = std::move(rows);
    std::vector<std::string> names;
    for (const auto& cell : planned(choice)) names.push_back(name_of(cell));
    return names;
  };
  EXPECT_THAT(chosen({"ssd300-vgg/fp32/nchw/eager", "vgg16/fp32/nchw/eager"}),
              ElementsAre("vgg16/fp32/nchw/eager", "ssd300-vgg/fp32/nchw/eager"));
  EXPECT_THAT(chosen({"inception3-aux"}), SizeIs(16));
  EXPECT_THAT(chosen({"ssd300-matched/fp16/graph/nhwc", "eager/nchw/fp32"}), SizeIs(8));
  EXPECT_THAT(chosen({"bert-128/tf32/graph/global", "bert-128/tf32/graph/x1"}),
              ElementsAre("bert-128/tf32/graph/x1", "bert-128/tf32/graph/global"));
  EXPECT_THROW(chosen({"resnet50/global"}), UsageError);
  choice.models = {"ssd300-vgg"};
  EXPECT_THAT(chosen({"fp32/nchw/eager"}), ElementsAre("ssd300-vgg/fp32/nchw/eager"));
}

TEST(PrecisionTable, MakesUpdatesOfTheGlobalBatch) {
  const auto parts = [](std::int64_t global, std::int64_t most) {
    const bench::Update update = bench::update_of(global, most);
    EXPECT_GE(update.batch * update.accumulation, global);
    EXPECT_LE(update.batch, most);
    return std::pair(update.batch, update.accumulation);
  };
  EXPECT_EQ(parts(65536, 64), std::pair(64L, 1024L));  // the harness' own numbers for one GPU
  EXPECT_EQ(parts(32768, 16), std::pair(16L, 2048L));
  EXPECT_EQ(parts(655, 64), std::pair(41L, 16L));  // at least 16 passes
  EXPECT_EQ(parts(2000, 64), std::pair(63L, 32L));
  EXPECT_EQ(parts(5, 64), std::pair(1L, 5L));
  EXPECT_EQ(parts(1, 1), std::pair(1L, 1L));

  Choice choice = everything();
  choice.rows = {"bert-512/fp16/eager/global", "bert-512/fp16/eager/x16", "vgg16/fp16/nhwc/eager"};
  const auto planned_at = [&](double scale, std::int64_t micro_batch) {
    choice.scale = scale;
    choice.micro_batch = micro_batch;
    std::vector<std::string> batches;
    for (const auto& cell : planned(choice)) {
      batches.push_back(std::to_string(cell.batch) + "x" + std::to_string(cell.accumulation) + " of " +
                        std::to_string(cell.global));
    }
    return batches;
  };
  EXPECT_THAT(planned_at(1, 0), ElementsAre("448x1 of 0", "16x16 of 0", "16x2048 of 32768"));
  EXPECT_THAT(planned_at(0.125, 0), ElementsAre("56x1 of 0", "2x16 of 0", "16x256 of 4096"));
  EXPECT_THAT(planned_at(0.125, 4), ElementsAre("4x1 of 0", "4x16 of 0", "4x1024 of 4096"));
  EXPECT_THAT(planned_at(1, 1), ElementsAre("2x1 of 0", "1x16 of 0", "1x32768 of 32768"));
}

}}  // namespace holdfast::test
