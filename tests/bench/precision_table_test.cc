// bench_precision_table: its arithmetic on figures that were made up, and the program on a tiny scale. No
// figure is judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "../../bench/precision_table/output.h"
#include "../../bench/precision_table/peak.h"
#include "../../bench/precision_table/published.h"
#include "../../bench/precision_table/table.h"
#include "holdfast/base/error.h"
#include "support/subprocess.h"

namespace holdfast::test {
namespace {

using bench::Choice;
using bench::Ratio;
using bench::ratios_of;
using bench::Row;
using bench::summary_of;
using bench::Table;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Row measured(const std::string& model, const std::string& precision, const std::string& layout,
             double images_per_second, const std::string& mode = "eager") {
  return {.cell = {.model = model, .precision = precision, .layout = layout, .mode = mode, .batch = 100},
          .pixels = 224,
          .seconds = {1e9, 100 / images_per_second, 0},  // the median is what counts
          .train_flops = 24e9};
}

Row refused(const std::string& model, const std::string& precision, const std::string& layout,
            const std::string& why, const std::string& mode = "eager") {
  return {.cell = {.model = model, .precision = precision, .layout = layout, .mode = mode, .batch = 100},
          .why = why};
}

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
  EXPECT_EQ(batch_of("alexnet", "fp16", 40, 1.0 / 64), 56);
  EXPECT_EQ(batch_of("resnet152", "fp32", 40, 0.001), 2);  // a batch norm needs two
  EXPECT_THROW(batch_of("lenet", "fp32", 40, 1), UsageError);
}

TEST(PrecisionTable, PlansEveryCombination) {
  const Choice choice{.models = {"resnet50", "alexnet"},
                      .precisions = {"fp32", "tf32", "fp16", "bf16"},
                      .layouts = {"nchw", "nhwc"},
                      .modes = {"eager", "graph"}};
  const auto cells = planned(choice);
  std::set<std::string> different;
  for (const auto& cell : cells) different.insert(cell.model + cell.precision + cell.layout + cell.mode);
  EXPECT_THAT(cells, SizeIs(32));
  EXPECT_THAT(different, SizeIs(32));
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
  EXPECT_NEAR(row.images_per_second(), 2500, 1e-9);
  EXPECT_NEAR(row.tflops(), 60, 1e-9);
  EXPECT_TRUE(std::isnan(row.utilisation()));
  row.peak_tflops = 120;
  EXPECT_NEAR(row.utilisation(), 0.5, 1e-12);
  EXPECT_THAT(line_of(row, "table"), AllOf(HasSubstr("resnet50   table"), HasSubstr("2500.00"),
                                           HasSubstr("       60 "), HasSubstr("50 %")));
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

TEST(PrecisionTable, ReadsPublishedFigures) {
  const std::string ours = std::string(HOLDFAST_SOURCE_DIR) + "/bench/precision_table/published.csv";
  const auto figures = bench::read_published(ours);
  ASSERT_THAT(figures, SizeIs(4));
  EXPECT_EQ(figures[3].model, "resnet50");
  EXPECT_EQ(figures[3].device, "A100");
  EXPECT_EQ(figures[3].images_per_second, 15621);
  EXPECT_NEAR(figures[3].of_one_gpu(), 1952.625, 1e-9);

  const TemporaryFolder folder;
  const std::string file = folder.path() / "figures.csv";
  const std::string names = "model,device,precision,gpus,images_per_second,source\n";
  const auto said = [&](const std::string& text) -> std::string {
    std::ofstream(file) << text;
    try {
      return std::to_string(bench::read_published(file).size());
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said("# remark\n" + names + "a,b,fp16,2,10,somebody, somewhere\n\n"), "1");
  EXPECT_THAT(said("a,b,fp16,2,10,c\n"), HasSubstr("line 1: the columns must be model,device"));
  EXPECT_THAT(said(names + "a,b,fp16,8,many,c\n"), HasSubstr("line 2: "));
  EXPECT_THAT(said(names + "a,b,fp16,0,10,c\n"), HasSubstr("line 2: "));
  EXPECT_THAT(said(names + "a,b\n"), HasSubstr("line 2: "));
  EXPECT_THROW(bench::read_published(folder.path() / "none"), UsageError);
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
                         .images_per_second = 15621,
                         .source = "AWS"}}};
}

TEST(PrecisionTable, JudgesTheGoalsOfResNet50) {
  const std::string good = summary_of(made_up());
  EXPECT_THAT(good, AllOf(HasSubstr("2.50   goal >= 2.28: met"), HasSubstr("2.50   goal >= 1.80: met"),
                          HasSubstr("1953   (15621 by 8 GPUs; AWS)")));
  Table slow = made_up();
  slow.rows[1] = measured("resnet50", "fp16", "nhwc", 2000);
  EXPECT_THAT(summary_of(slow),
              AllOf(HasSubstr("2.00   goal >= 2.28: missed"), HasSubstr("2.00   goal >= 1.80: met")));
}

TEST(PrecisionTable, WritesForPrograms) {
  const Table table = made_up();
  const std::vector<std::string> lines = lines_of(csv_of(table));
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_THAT(lines[0],
              StartsWith("device,variant,model,precision,layout,mode,batch,pixels,images_per_second"));
  EXPECT_THAT(lines[1], StartsWith("a GPU <of> ours,table,resnet50,tf32,nchw,eager,100,224,1000,0.1,24,,"));
  EXPECT_THAT(lines[3], EndsWith(",\"no, \"\"never\"\"\""));

  const auto all = nlohmann::json::parse(json_of(table));
  EXPECT_EQ(all["variant"], "table");
  ASSERT_EQ(all["rows"].size(), 4u);
  EXPECT_EQ(all["rows"][1]["images_per_second"], 2500);
  EXPECT_TRUE(all["rows"][2]["images_per_second"].is_null());
  EXPECT_EQ(all["rows"][3]["why"], "it does not fit");
  EXPECT_EQ(all["ratios"][0]["of"], "fp16/tf32");
  EXPECT_NEAR(all["ratios"][0]["table_style"].get<double>(), 2.5, 1e-9);
  EXPECT_EQ(all["published"][0]["gpus"], 8);

  const std::string chart = chart_of(table);
  EXPECT_THAT(chart, AllOf(StartsWith("<svg "), EndsWith("</svg>\n"), HasSubstr("a GPU &lt;of&gt; ours"),
                           HasSubstr("published: A100 fp16"), HasSubstr("nothing was measured"),
                           Not(HasSubstr("nan"))));
}

Ended program(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(HOLDFAST_BIN_DIR) + "/" + name);
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(4));
}
Ended bench_table(std::vector<std::string> arguments) {
  return program("bench_precision_table", std::move(arguments));
}

TEST(BenchPrecisionTable, HasARowForEverythingOnACpu) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  const Ended ended =
      bench_table({"--device", "cpu", "--models", "resnet50", "--scale", "0.001", "--pixels", "32", "--steps",
                   "1", "--threads", "1", "--variant", "table", "--peak", "fp32=2", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  ASSERT_EQ(all["rows"].size(), 16u);
  for (const auto& row : all["rows"]) {
    const bool can = row["mode"] == "eager" && row["precision"] != "tf32";
    ASSERT_EQ(row["measured"].get<bool>(), can) << row;
    if (can) {
      EXPECT_GT(row["images_per_second"].get<double>(), 0);
      EXPECT_NEAR(row["loss"].get<double>(), 10, 8);  // a guess among 1001, of two pictures
      EXPECT_EQ(row["utilisation"].is_number(), row["precision"] == "fp32");
    } else if (row["precision"] == "tf32") {
      EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("tf32"));
    } else {
      EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("CUDA"));
    }
  }
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("variant table"), HasSubstr("FP16/TF32, resnet50 (table), eager: not"),
                    HasSubstr("published, images/s of one GPU")));
  EXPECT_THAT(lines_of(read_text(output + ".csv")), SizeIs(17));
  EXPECT_THAT(read_text(output + ".svg"), AllOf(StartsWith("<svg "), HasSubstr("fp16 nhwc eager, batch 2")));
}

void expect_one_line(const Ended& ended, const std::string& words,
                     const std::string& name = "bench_precision_table") {
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(lines_of(ended.err), SizeIs(1)) << ended.err;
  EXPECT_THAT(ended.err, AllOf(StartsWith(name + ": "), HasSubstr(words)));
}

TEST(BenchPrecisionTable, RefusesInOneLineWhatCannotWork) {
  expect_one_line(bench_table({"--fast"}), "--fast");
  expect_one_line(bench_table({"--models", "resnet51"}), "knows no 'resnet51': choose from resnet50");
  expect_one_line(bench_table({"--precisions", "fp8"}), "knows no 'fp8'");
  expect_one_line(bench_table({"--layouts", "nhcw"}), "knows no 'nhcw'");
  expect_one_line(bench_table({"--variant", "v2"}), "knows no 'v2'");
  expect_one_line(bench_table({"--memory", "64"}), "32 or 40");
  expect_one_line(bench_table({"--scale", "-1"}), "--scale");
  expect_one_line(bench_table({"--device", "cpu", "--peak", "fast"}), "--peak 'fast'");
  expect_one_line(bench_table({"--device", "cpu", "--published", "/nowhere"}), "cannot read /nowhere");
  expect_one_line(bench_table({"--device", "cpu", "--output", "/nowhere/at/all"}),
                  "cannot write /nowhere/at/all.csv");
}

TEST(BenchPrecisionTable, TeachesByHelp) {
  const Ended ended = bench_table({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* word : {"torchvision", "table", "227", "--scale", "--memory", "--peak", "--published",
                           "TF32 in NCHW against FP16 in NHWC", "1536/3072"}) {
    EXPECT_THAT(ended.out, HasSubstr(word));
  }
}

// The peers themselves need an installed PyTorch: no test has that.
TEST(BenchStepTime, TeachesAndRefusesInOneLine) {
  const Ended help = program("bench_step_time", {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("eager"), HasSubstr("bench/peers/install"), HasSubstr("mlp")));
  const auto refused = [](std::vector<std::string> arguments, const std::string& words) {
    expect_one_line(program("bench_step_time", std::move(arguments)), words, "bench_step_time");
  };
  refused({"--models", "lenet"}, "there is no model 'lenet'");
  refused({"--variant", "v2"}, "there is no variant 'v2'");
  refused({"--batch", "1"}, "--batch");
}

}  // namespace
}  // namespace holdfast::test
