// bench_precision_table's arithmetic on figures that were made up: nothing of Torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../../bench/precision_table/kept_rows.h"
#include "../../bench/precision_table/memory.h"
#include "../../bench/precision_table/output.h"
#include "../../bench/precision_table/peak.h"
#include "../../bench/precision_table/published.h"
#include "../../bench/precision_table/row_text.h"
#include "../../bench/precision_table/table.h"
#include "holdfast/base/error.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using bench::Ratio;
using bench::ratios_of;
using bench::Row;
using bench::summary_of;
using bench::Table;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Row measured(const std::string& model, const std::string& precision, const std::string& layout,
             double per_second, const std::string& mode = "eager") {
  return {.cell = {.model = model, .precision = precision, .layout = layout, .mode = mode, .batch = 100},
          .size = 224,
          .seconds = {1e9, 100 / per_second, 0},  // the median is what counts
          .train_flops = 24e9};
}

Row refused(const std::string& model, const std::string& precision, const std::string& layout,
            const std::string& why, const std::string& mode = "eager") {
  return {.cell = {.model = model, .precision = precision, .layout = layout, .mode = mode, .batch = 100},
          .why = why};
}

TEST(PrecisionTable, ComparesInTwoWays) {
  const std::vector<Row> rows = {
      measured("resnet50", "tf32", "nchw", 1000), measured("resnet50", "tf32", "nhwc", 1300),
      measured("resnet50", "fp16", "nchw", 1500), measured("resnet50", "fp16", "nhwc", 2600),
      measured("resnet50", "fp32", "nchw", 650),  measured("resnet50", "bf16", "nhwc", 9999)};
  const auto ratios = ratios_of(rows, "tf32");
  ASSERT_THAT(ratios, SizeIs(1));
  EXPECT_NEAR(ratios[0].table_style, 2.6, 1e-12);
  EXPECT_NEAR(ratios[0].fair, 2.0, 1e-12);
  EXPECT_EQ(ratios[0].why, "");
  EXPECT_NEAR(ratios_of(rows, "fp32")[0].table_style, 4.0, 1e-12);
  // The best layout need not be the tensor cores'.
  const auto upside_down =
      ratios_of({measured("alexnet", "tf32", "nchw", 500), measured("alexnet", "tf32", "nhwc", 400),
                 measured("alexnet", "fp16", "nchw", 900), measured("alexnet", "fp16", "nhwc", 600)},
                "tf32");
  EXPECT_NEAR(upside_down[0].table_style, 1.2, 1e-12);
  EXPECT_NEAR(upside_down[0].fair, 1.8, 1e-12);
}

// What is missing may be the better one.
TEST(PrecisionTable, IsFairOnlyIfEachWasMeasuredInBothLayouts) {
  std::vector<Row> rows = {measured("resnet50", "tf32", "nchw", 1000),
                           measured("resnet50", "fp16", "nhwc", 2600)};
  EXPECT_NEAR(ratios_of(rows, "tf32")[0].table_style, 2.6, 1e-12);
  EXPECT_TRUE(std::isnan(ratios_of(rows, "tf32")[0].fair));
  EXPECT_THAT(summary_of({.heading = {.variant = "table"}, .rows = rows}),
              HasSubstr("goal >= 1.80: not measured"));
  rows.push_back(measured("resnet50", "fp16", "nchw", 1500));
  EXPECT_TRUE(std::isnan(ratios_of(rows, "tf32")[0].fair));
}

TEST(PrecisionTable, JudgesNoRatioOfDifferentNorms) {
  std::vector<Row> rows = {measured("resnet50", "tf32", "nchw", 1000),
                           measured("resnet50", "fp16", "nhwc", 2600)};
  rows[0].bn = "aten";
  rows[1].bn = "fused";
  const std::string summary = summary_of({.heading = {.variant = "table"}, .rows = rows});
  EXPECT_THAT(summary, AllOf(HasSubstr("aten norms against fused"), Not(HasSubstr("goal >= 2.28: met"))));
}

TEST(PrecisionTable, ComparesWithinOneModelAndOneMode) {
  std::vector<Row> rows = {measured("resnet50", "tf32", "nchw", 1000),
                           measured("resnet50", "fp16", "nhwc", 2000),
                           measured("resnet50", "tf32", "nchw", 1100, "graph"),
                           measured("resnet50", "fp16", "nhwc", 3300, "graph"),
                           measured("vgg16", "tf32", "nchw", 10),
                           measured("vgg16", "fp16", "nhwc", 40)};
  const auto ratios = ratios_of(rows, "tf32");
  ASSERT_THAT(ratios, SizeIs(3));
  EXPECT_NEAR(ratios[0].table_style, 2, 1e-12);
  EXPECT_NEAR(ratios[1].table_style, 3, 1e-12);
  EXPECT_EQ(ratios[1].mode, "graph");
  EXPECT_NEAR(ratios[2].table_style, 4, 1e-12);
  rows[3].counts_for_ratios = false;  // its capture failed, so it says nothing about graphs
  EXPECT_TRUE(std::isnan(ratios_of(rows, "tf32")[1].table_style));
  EXPECT_EQ(ratios_of(rows, "tf32")[1].why, "no graph could be captured");
}

TEST(PrecisionTable, ComparesUpdatesOfTheSameGlobalBatch) {
  // Passes that did not fit in TF32 were smaller, and more: the ratio is of the same update.
  Row fp16 = measured("bert-512", "fp16", bench::kNoLayout, 40);
  fp16.cell.global = 32768;
  Row tf32 = fp16;
  fp16.cell.batch = 16, fp16.cell.accumulation = 2048;
  tf32.cell.precision = "tf32", tf32.cell.batch = 8, tf32.cell.accumulation = 4096;
  tf32.seconds = fp16.seconds;
  const Row x16 = measured("bert-512", "fp16", bench::kNoLayout, 1);
  const auto ratios = ratios_of({fp16, tf32, x16}, "tf32");
  ASSERT_THAT(ratios, SizeIs(2));
  EXPECT_NEAR(ratios[0].fair, 1, 1e-9);
  EXPECT_THAT(summary_of({.heading = {.variant = "table"}, .rows = {fp16, tf32}}),
              HasSubstr("FP16/TF32, bert-512 (table), eager, updates of 32768\n"));
  EXPECT_EQ(bench::row_of(text_of(tf32)).cell.global, 32768);
}

TEST(PrecisionTable, SaysWhyNothingCanBeCompared) {
  const std::vector<Row> rows = {refused("resnet50", "tf32", "nchw", "this CPU has no tf32"),
                                 measured("resnet50", "fp16", "nhwc", 5)};
  EXPECT_EQ(ratios_of(rows, "tf32")[0].why, "this CPU has no tf32");
  EXPECT_EQ(ratios_of(rows, "fp32")[0].why, "fp32 was not asked for");
  const std::string summary = summary_of({.heading = {.variant = "table"}, .rows = rows});
  EXPECT_THAT(summary, HasSubstr("FP16/TF32, resnet50 (table), eager: not measured: this CPU has no tf32"));
}

TEST(PrecisionTable, CountsTheModelsOwnArithmetic) {
  Row row = measured("resnet50", "fp16", "nhwc", 2500);
  EXPECT_NEAR(row.samples_per_second(), 2500, 1e-9);
  EXPECT_NEAR(row.tflops(), 60, 1e-9);
  EXPECT_TRUE(std::isnan(row.utilisation()));
  row.peak_tflops = 120;
  EXPECT_NEAR(row.utilisation(), 0.5, 1e-12);
  const Table table{.heading = {.variant = "table"}};
  EXPECT_THAT(line_of(row, table), AllOf(HasSubstr("resnet50   table"), HasSubstr("2500.00 img/s"),
                                         HasSubstr("       60 "), HasSubstr("50 %")));
  row.cell.accumulation = 16;  // 100 at a time, and all of them in a step
  row.unit = "sequences";
  EXPECT_NEAR(row.samples_per_second(), 40000, 1e-6);
  EXPECT_THAT(line_of(row, table), AllOf(HasSubstr("100x16"), HasSubstr("40000.00 seq/s")));
}

TEST(PrecisionTable, ComparesWithPeersTurnByTurn) {
  Row row = measured("resnet50", "fp32", "nchw", 10);
  row.seconds = {1, 2, 4};
  // Slower by a half in each turn, though the medians of both, 2 and 2.25, say otherwise.
  row.peers = {{.name = "eager", .seconds = {1.5, 2.25, 6}, .first_loss_difference = 1e-6},
               {.name = "compile", .why = "no compiler"}};
  EXPECT_NEAR(row.times_as_fast_as(row.peers[0]), 1.5, 1e-12);
  EXPECT_TRUE(std::isnan(row.times_as_fast_as(row.peers[1])));
  Table table{.heading = {.variant = "table", .peers = {"eager", "compile"}}, .rows = {row}};
  EXPECT_THAT(
      line_of(row, table),
      AllOf(HasSubstr(" 1.50       -"), HasSubstr("; left out: compile: no compiler"),
            EndsWith("  the first loss of eager differs by 1e-06; left out: compile: no compiler\n")));
  EXPECT_THAT(csv_of(table), AllOf(HasSubstr(",times_as_fast_as_eager,first_loss_difference_eager,"),
                                   HasSubstr(",1.5,1e-06,,,")));
  EXPECT_EQ(nlohmann::json::parse(json_of(table))["rows"][0]["peers"][0]["first_loss_difference"], 1e-6);
  row.peers[0].first_loss_difference = 3e-4;
  EXPECT_THAT(line_of(row, table), HasSubstr("the first loss of eager differs by 0.0003, more than 0.0001"));
  row.peers[0].seconds.pop_back();
  EXPECT_TRUE(std::isnan(row.times_as_fast_as(row.peers[0])));
}

TEST(PrecisionTable, NamesTheRowsWhoseFirstLossesDiffer) {
  Table table{.heading = {.peers = {"eager"}},
              .rows = {measured("resnet50", "fp32", "nchw", 10), measured("vgg16", "bf16", "nhwc", 10),
                       measured("alexnet", "fp32", "nhwc", 10), measured("ssd300", "fp32", "nhwc", 10)}};
  EXPECT_EQ(disagreements_of(table), "");  // nobody to compare with
  for (Row& row : table.rows) {
    row.peers = {{.name = "eager", .seconds = row.seconds, .first_loss_difference = 1e-4}};
  }
  table.rows[1].peers[0].first_loss_difference = 0.02;  // as far as BF16 goes
  EXPECT_EQ(disagreements_of(table), "");
  EXPECT_THAT(line_of(table.rows[1], table), EndsWith("differs by 0.02\n"));
  table.rows[2].peers[0].first_loss_difference = 1.1e-4;
  table.rows[3].peers[0].first_loss_difference = bench::kNotMeasured;  // ours was no number
  EXPECT_THAT(
      disagreements_of(table),
      AllOf(HasSubstr("alexnet/fp32/nhwc/eager (eager: 0.00011), ssd300/fp32/nhwc/eager (eager: no number)"),
            Not(HasSubstr("resnet50")), Not(HasSubstr("vgg16")), Not(HasSubstr("\n"))));
  table.rows[2].peers[0].why = "it ended later";
  EXPECT_THAT(disagreements_of(table), HasSubstr("alexnet"));
}

TEST(PrecisionTable, JudgesRowsBesideTheirPeers) {
  const auto beside = [](Row row, const std::string& peer, double times) {
    row.seconds = {1, 1, 1};
    row.peers = {{.name = peer, .seconds = {times, times, times}, .first_loss_difference = 0}};
    return row;
  };
  const auto said = [](bool gpu, Row row) {
    return summary_of({.heading = {.gpu = gpu, .variant = "table"}, .rows = {std::move(row)}});
  };
  const auto cpu = [&](const Row& row) { return said(false, row); };
  const auto gpu = [&](const Row& row) { return said(true, row); };
  const Row fp32 = measured("vgg16", "fp32", "nchw", 10);
  const Row fp16 = measured("vgg16", "fp16", "nhwc", 10);
  EXPECT_THAT(
      cpu(beside(fp32, "eager", 1.0)),
      AllOf(HasSubstr("vgg16/fp32/nchw/eager             1.00 x Python eager          goal >= 1.00: met\n"),
            HasSubstr("goals not measured: no GPU here: FP16/TF32 of ResNet-50 >= 2.28")));
  EXPECT_THAT(cpu(beside(fp32, "eager", 0.93)), HasSubstr("goal >= 1.00: missed by 0.07\n"));
  EXPECT_THAT(cpu(beside(fp32, "eager", 0.999)), HasSubstr("goal >= 1.00: missed by 0.001\n"));
  EXPECT_THAT(cpu(beside(fp32, "compile", 0.9)), Not(HasSubstr("beside Python")));
  EXPECT_THAT(cpu(beside(fp16, "eager", 0.9)), Not(HasSubstr("beside Python")));
  EXPECT_THAT(gpu(beside(fp32, "eager", 0.9)), Not(HasSubstr("beside Python")));
  EXPECT_THAT(gpu(beside(fp16, "eager", 1.01)),
              AllOf(HasSubstr("goal >= 1.00: met\n"), Not(HasSubstr("not measured: no"))));
  EXPECT_THAT(gpu(beside(measured("vgg16", "fp16", "nchw", 1), "eager", 2)), Not(HasSubstr("beside Python")));
  EXPECT_THAT(gpu(beside(measured("bert-128", "fp16", "-", 1), "eager", 2)),
              HasSubstr("goal >= 1.00: met\n"));
  const Row resnet50 = measured("resnet50", "fp16", "nhwc", 10, "graph");
  EXPECT_THAT(gpu(beside(resnet50, "eager", 1.01)), HasSubstr("goal >= 1.02: missed by 0.01\n"));
  EXPECT_THAT(gpu(beside(resnet50, "max-autotune", 0.91)), HasSubstr("goal >= 0.95: missed by 0.04\n"));
  EXPECT_THAT(gpu(resnet50), HasSubstr("goals not measured: no --peers eager,max-autotune here: FP16 NHWC"));
  Row failed = beside(fp32, "eager", 1);
  failed.peers[0].why = "it ended";
  EXPECT_THAT(cpu(failed), HasSubstr("      - x Python eager          goal >= 1.00: not measured\n"));
  const auto json =
      nlohmann::json::parse(json_of(Table{.heading = {}, .rows = {beside(fp32, "eager", 0.5)}}));
  EXPECT_EQ(json["rows"][0]["peers"][0]["goal"], 1.0);
  EXPECT_EQ(json["rows"][0]["peers"][0]["met"], false);
}

TEST(PrecisionTable, KeepsARowAsText) {
  Row row = measured("bert-128", "fp16", bench::kNoLayout, 1.0 / 3);
  row.cell.accumulation = 16;
  row.unit = "sequences";
  row.note = "a note with \"quotes\"";
  row.loss = 10.3;
  row.counts_for_ratios = false;
  row.peers = {{.name = "eager+fused", .seconds = {0.1, 0.2}, .first_loss_difference = 1.0 / 7}};
  const Row same = bench::row_of(text_of(row));
  EXPECT_EQ(text_of(same), text_of(row));
  EXPECT_EQ(name_of(same.cell), name_of(row.cell));
  EXPECT_EQ(same.cell.batch, row.cell.batch);
  EXPECT_EQ(same.seconds, row.seconds);
  EXPECT_EQ(same.note, row.note);
  EXPECT_EQ(same.peers[0].first_loss_difference, 1.0 / 7);
  EXPECT_TRUE(std::isnan(same.first_loss));
  EXPECT_FALSE(same.counts_for_ratios);
  const Row none = refused("vgg16", "tf32", "nchw", "no \xC3\xA4");
  EXPECT_EQ(bench::row_of(text_of(none)).why, none.why);
  EXPECT_THROW(bench::row_of("{}"), RefusedError);
}

TEST(PrecisionTable, SaysWhatDoesNotFit) {
  const bench::Demand demand{.fixed = 2e9, .per_sample = 0.5e9, .seen = 2};
  EXPECT_EQ(why_no_room(demand, 12, 64, 8e9), "");
  EXPECT_EQ(
      why_no_room(demand, 64, 64, 8e9),
      "it does not fit: it needs about 34 GB (estimated from a batch of 2) and 8 GB are free; a batch of "
      "12 fits: --scale 0.1875");
  EXPECT_THAT(why_no_room(demand, 64, 64, 2.4e9), EndsWith("no batch fits"));
  const bench::Demand weights{.fixed = 5.4e9};
  EXPECT_EQ(
      why_no_room(weights, 64, 64, 4e9),
      "it does not fit: it needs about 5.4 GB for its weights, gradients and slots alone and 4 GB are free; "
      "no batch fits");
  EXPECT_EQ(demand.batch_in(1e9), 0);
  EXPECT_EQ(demand.batch_in(2.5e9), 1);
  EXPECT_EQ((bench::Demand{.fixed = 2e9, .per_sample = 0.5e9, .seen = 2, .least = 2}.batch_in(2.9e9)), 0);
  // The device was full, whatever the estimate said.
  EXPECT_EQ(
      why_overflowed(demand, 12, 64, 9e9),
      "it does not fit: it needs more than the 9 GB that are free, and at least 8 GB (estimated from a batch "
      "of 2); a batch of 8 should fit: --scale 0.125");
  EXPECT_EQ(batch_after_overflow(demand, 12), 8);  // 6 GB, and a quarter more are 7.5
  EXPECT_EQ(
      why_overflowed(weights, 2, 64, 6e9),
      "it does not fit: it needs more than the 6 GB that are free, and at least 5.4 GB for its weights, "
      "gradients and slots alone; no batch fits");
  EXPECT_EQ(batch_after_overflow(weights, 2), 0);
  EXPECT_GT(bench::free_of_machine(), 0);
  Row row = refused("vgg16", "fp32", "nchw", "it does not fit");
  row.needed_bytes = 34e9;
  row.batch_that_fits = 12;
  EXPECT_THAT(csv_of(Table{.heading = {}, .rows = {row}}), HasSubstr(",34,12,"));
  EXPECT_EQ(bench::row_of(text_of(row)).batch_that_fits, 12);
}

TEST(PrecisionTable, KnowsSomeDevicesAndIsToldOfOthers) {
  using bench::known_peaks;
  using bench::parse_peaks;
  EXPECT_EQ(known_peaks("Tesla V100-SXM2-16GB")->at("fp16"), 125);
  EXPECT_FALSE(known_peaks("Tesla V100-SXM2-16GB")->contains("tf32"));
  EXPECT_EQ(known_peaks("NVIDIA A100-SXM4-40GB")->at("tf32"), 156);
  EXPECT_EQ(known_peaks("NVIDIA H200")->at("bf16"), 989);
  EXPECT_EQ(known_peaks("this CPU"), std::nullopt);
  EXPECT_EQ(parse_peaks("2.5").at("tf32"), 2.5);
  const auto some = parse_peaks("tf32=156,fp16=312");
  EXPECT_EQ(some.at("fp16"), 312);
  EXPECT_FALSE(some.contains("fp32"));
  for (const char* wrong : {"", "fast", "-1", "0", "fp16=", "fp8=1000", "fp16=312,7", "nan"}) {
    EXPECT_THROW(parse_peaks(wrong), UsageError) << wrong;
  }
}

std::string in_bench(const std::string& file) {
  return std::string(HOLDFAST_SOURCE_DIR) + "/bench/precision_table/" + file;
}

TEST(PrecisionTable, ReadsPublishedFigures) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "figures.csv";
  const std::string names = "model,device,precision,gpus,samples_per_second,source\n";
  const auto said = [&](const std::string& text) -> std::string {
    std::ofstream(file) << text;
    try {
      return std::to_string(bench::read_published(file).size());
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("# remark\n" + names + "a,b,fp16,2,10,somebody, somewhere\n\n"), "1");
  EXPECT_EQ(said("model,device,precision,gpus,images_per_second,source\na,b,fp16,2,10,c\n"), "1");
  EXPECT_THAT(said("a,b,fp16,2,10,c\n"), HasSubstr("line 1: the columns must be model,device"));
  EXPECT_THAT(said(names + "a,b,fp16,8,many,c\n"), HasSubstr("line 2: "));
  EXPECT_THAT(said(names + "a,b,fp16,0,10,c\n"), HasSubstr("line 2: "));
  EXPECT_THAT(said(names + "a,b\n"), HasSubstr("line 2: "));
  EXPECT_THROW(bench::read_published(folder.path() / "none"), UsageError);
  std::ofstream(file) << "model,gpus,of,over,precision,times,source\na,8,b,c,fp16,fast,d\n";
  EXPECT_THROW(bench::read_printed_speed_ups(file), UsageError);
}

bench::Published published(const std::string& model, const std::string& device, const std::string& precision,
                           int gpus, double speed) {
  return {.model = model,
          .device = device,
          .precision = precision,
          .gpus = gpus,
          .samples_per_second = speed,
          .source = "somebody"};
}

TEST(PrecisionTable, PutsPublishedFiguresBeside) {
  const std::vector<bench::Published> all = {published("vgg16", "V100", "fp32", 8, 800),
                                             published("vgg16", "A100", "tf32", 4, 800),
                                             published("vgg16", "A100", "fp16", 8, 4000)};
  EXPECT_THAT(devices_of(all), ElementsAre("V100", "A100"));
  EXPECT_EQ(beside(all, "vgg16", "A100", "fp32")->of_one_gpu(), 200);  // what the table has in FP32's place
  EXPECT_EQ(beside(all, "vgg16", "V100", "tf32")->of_one_gpu(), 100);
  EXPECT_EQ(beside(all, "vgg16", "A100", "bf16")->of_one_gpu(), 500);
  EXPECT_EQ(beside(all, "vgg16", "V100", "fp16"), std::nullopt);
  EXPECT_EQ(beside(all, "alexnet", "V100", "fp32"), std::nullopt);
  const Row row = measured("vgg16", "bf16", "nhwc", 750);
  const Table table{.heading = {.variant = "table"}, .rows = {row}, .published = all};
  EXPECT_THAT(heading_line(table), EndsWith("     V100  times      A100  times A100/V100\n"));
  EXPECT_THAT(line_of(row, table), EndsWith("        -      -     500.0    1.5         -\n"));
  EXPECT_THAT(line_of(measured("vgg16", "fp32", "nhwc", 50), table),
              EndsWith("    100.0    0.5     200.0   0.25      2.00\n"));
  EXPECT_EQ(bench::speed_up(all, "vgg16", "A100", "V100", "tf32"), 2.0);
  EXPECT_EQ(bench::speed_up(all, "vgg16", "A100", "V100", "fp16"), std::nullopt);
  const auto json = nlohmann::json::parse(json_of(table));
  EXPECT_EQ(json["rows"][0]["published"]["A100"]["times"], 1.5);
  EXPECT_FALSE(json["rows"][0]["published"].contains("V100"));
  EXPECT_FALSE(json["rows"][0].contains("published_speed_ups"));
  const Table fp32{.heading = {}, .rows = {measured("vgg16", "fp32", "nhwc", 50)}, .published = all};
  EXPECT_EQ(nlohmann::json::parse(json_of(fp32))["rows"][0]["published_speed_ups"]["A100/V100"], 2.0);
  EXPECT_THAT(csv_of(fp32), AllOf(HasSubstr(",times_A100,published_A100/V100,"), HasSubstr(",200,0.25,2,,")));
}

TEST(PrecisionTable, ComputesPublishedSpeedUps) {
  const auto all = bench::speed_ups_of(
      {published("vgg16", "V100", "fp32", 8, 800), published("vgg16", "V100", "fp16", 8, 1600),
       published("vgg16", "A100", "tf32", 4, 1000), published("vgg16", "A100", "fp16", 4, 2400),
       published("alexnet", "A100", "fp16", 1, 7)});
  std::vector<std::string> lines;
  for (const auto& one : all) lines.push_back(one.of + "/" + one.over + "=" + std::to_string(one.times));
  EXPECT_THAT(lines,
              testing::UnorderedElementsAre("V100 fp16/V100 fp32=2.000000", "A100 tf32/V100 fp32=2.500000",
                                            "A100 fp16/V100 fp16=3.000000", "A100 fp16/A100 tf32=2.400000"));
  const Table table{.heading = {},
                    .rows = {measured("resnet50", "fp16", "nhwc", 1), measured("bert-512", "fp16", "-", 1)},
                    .published = bench::read_published(in_bench("published.csv")),
                    .printed = bench::read_printed_speed_ups(in_bench("printed_speed_ups.csv"))};
  EXPECT_THAT(summary_of(table), AllOf(HasSubstr("resnet50   A100 fp16  over A100 tf32    2.28"),
                                       HasSubstr("resnet50   A100 fp16  over V100 fp16    2.11"),
                                       HasSubstr("bert-512   A100 tf32  over V100 fp32    3.89"),
                                       HasSubstr("bert-512   P4d fp16   over P3dn fp16    2.40   (of 8 GPUs; "
                                                 "printed so: AWS P4d announcement)"),
                                       HasSubstr("bert-512   A100   fp16        77.0   (77 by 1 GPUs; AWS"),
                                       Not(HasSubstr("bert-128")), Not(HasSubstr("not asked for"))));
}

Table made_up() {
  return {.heading = {.device = "a GPU <of> ours", .variant = "table", .machine = "m", .how = "h"},
          .rows = {measured("resnet50", "tf32", "nchw", 1000), measured("resnet50", "fp16", "nhwc", 2500),
                   refused("resnet50", "bf16", "nhwc", "no, \"never\""),
                   refused("vgg16", "tf32", "nchw", "it does not fit")},
          .published = {{.model = "resnet50",
                         .device = "A100",
                         .precision = "fp16",
                         .gpus = 8,
                         .samples_per_second = 15621,
                         .source = "AWS"},
                        {.model = "resnet50",
                         .device = "A100",
                         .precision = "tf32",
                         .gpus = 8,
                         .samples_per_second = 6841,
                         .source = "AWS"}}};
}

TEST(PrecisionTable, JudgesTheGoalsOfResNet50) {
  const auto in_both_layouts = [] {
    Table table = made_up();
    table.rows.push_back(measured("resnet50", "tf32", "nhwc", 900));
    table.rows.push_back(measured("resnet50", "fp16", "nchw", 1100));
    return table;
  };
  const std::string good = summary_of(in_both_layouts());
  EXPECT_THAT(good, AllOf(HasSubstr("2.50   goal >= 2.28: met"), HasSubstr("2.50   goal >= 1.80: met"),
                          HasSubstr("1952.6   (15621 by 8 GPUs; AWS)")));
  Table slow = in_both_layouts();
  slow.rows[1] = measured("resnet50", "fp16", "nhwc", 2000);
  EXPECT_THAT(summary_of(slow),
              AllOf(HasSubstr("2.00   goal >= 2.28: missed by 0.28\n"), HasSubstr("2.00   goal >= 1.80: met"),
                    HasSubstr("    published: A100, fp16 over tf32                            2.28\n")));
  Table none = made_up();
  none.rows = {refused("resnet50", "tf32", "nchw", "a CPU has none"),
               measured("resnet50", "fp16", "nhwc", 1)};
  EXPECT_THAT(summary_of(none),
              AllOf(HasSubstr("eager: not measured: a CPU has none\n    published: A100, fp16"),
                    HasSubstr("2.28\n")));
}

TEST(PrecisionTable, WritesForPrograms) {
  const Table table = made_up();
  const std::vector<std::string> lines = lines_of(csv_of(table));
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(
      lines[0],
      StartsWith("device,variant,model,precision,layout,mode,batch,accumulation,size,samples_per_second"));
  EXPECT_THAT(lines[1],
              StartsWith("a GPU <of> ours,table,resnet50,tf32,nchw,eager,100,1,224,1000,images,0.1,24,,"));
  EXPECT_THAT(lines[3], EndsWith(",\"no, \"\"never\"\"\""));

  const auto all = nlohmann::json::parse(json_of(table));
  EXPECT_EQ(all["variant"], "table");
  ASSERT_EQ(all["rows"].size(), 4u);
  EXPECT_EQ(all["rows"][1]["samples_per_second"], 2500);
  EXPECT_TRUE(all["rows"][2]["samples_per_second"].is_null());
  EXPECT_EQ(all["rows"][3]["why"], "it does not fit");
  EXPECT_EQ(all["ratios"][0]["of"], "fp16/tf32");
  EXPECT_NEAR(all["ratios"][0]["table_style"].get<double>(), 2.5, 1e-9);
  EXPECT_NEAR(all["ratios"][0]["published"]["A100"].get<double>(), 2.2834, 1e-4);
  EXPECT_FALSE(all["ratios"][1].contains("published"));  // vgg16
  EXPECT_EQ(all["published"][0]["gpus"], 8);
  EXPECT_TRUE(all["printed_speed_ups"].empty());

  const std::string chart = chart_of(table);
  EXPECT_THAT(chart, AllOf(StartsWith("<svg "), EndsWith("</svg>\n"), HasSubstr("a GPU &lt;of&gt; ours"),
                           HasSubstr("published: A100 fp16"), HasSubstr("nothing was measured"),
                           Not(HasSubstr("nan"))));
}

// A complete table again: rows that this very build measured with the same options are not measured anew.
TEST(PrecisionTable, KeepsRowsOfTheSameBuildAndOptions) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "table.json";
  Table table = made_up();
  table.heading.build = "b1";
  table.heading.options = "steps=3";
  std::ofstream(file) << json_of(table);
  const auto kept = bench::kept_rows(file, "b1", "steps=3");
  ASSERT_THAT(kept, SizeIs(2));  // those that were measured
  EXPECT_EQ(kept[0].cell.precision, "tf32");
  EXPECT_EQ(text_of(kept[1]), text_of(table.rows[1]));
  EXPECT_THAT(bench::kept_rows(file, "b2", "steps=3"), SizeIs(0));
  EXPECT_THAT(bench::kept_rows(file, "b1", "steps=4"), SizeIs(0));
  EXPECT_THAT(bench::kept_rows(folder.path() / "none", "b1", "steps=3"), SizeIs(0));
  std::ofstream(file) << "{\"build\": \"b1\", \"options\": \"steps=3\", \"rows\": [{}]}";
  EXPECT_THAT(bench::kept_rows(file, "b1", "steps=3"), SizeIs(0));
  EXPECT_EQ(bench::build_of(folder.path()), bench::build_of(folder.path()));
  std::ofstream(folder.path() / "peer.py") << "pass";
  EXPECT_NE(bench::build_of(folder.path()), bench::build_of("/nowhere"));
}

}}  // namespace holdfast::test
