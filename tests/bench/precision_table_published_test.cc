// The figures that others published, as they stand beside ours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../../bench/precision_table/published.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

std::string in_bench(const std::string& file) {
  return std::string(HOLDFAST_SOURCE_DIR) + "/bench/precision_table/" + file;
}

// The announcement's table, images/s of 8 GPUs, and what it prints of BERT.
TEST(PrecisionTable, HasTheWholePublishedTable) {
  const auto figures = bench::read_published(in_bench("published.csv"));
  const auto of_machine = [&](const std::string& model, const std::string& device,
                              const std::string& precision) {
    const auto one = beside(figures, model, device, precision);
    return one ? one->samples_per_second * 8 / one->gpus : 0;
  };
  struct Line {
    const char* model;
    double p3dn_fp32, p3dn_fp16, p4d_tf32, p4d_fp16;
  };
  for (const Line& line :
       {Line{"resnet50", 3057, 7413, 6841, 15621}, Line{"resnet152", 1145, 2644, 2823, 5700},
        Line{"inception3", 2010, 4969, 4808, 10433}, Line{"inception4", 847, 1778, 2025, 3811},
        Line{"vgg16", 1202, 2092, 4532, 7240}, Line{"alexnet", 32198, 50708, 82192, 133068},
        Line{"ssd300", 1554, 2918, 3467, 6016}}) {
    SCOPED_TRACE(line.model);
    EXPECT_EQ(of_machine(line.model, "V100", "fp32"), line.p3dn_fp32);
    EXPECT_EQ(of_machine(line.model, "V100", "fp16"), line.p3dn_fp16);
    EXPECT_EQ(of_machine(line.model, "A100", "tf32"), line.p4d_tf32);
    EXPECT_EQ(of_machine(line.model, "A100", "fp16"), line.p4d_fp16);
    // The ratios that the announcement prints, beside rows in those numbers.
    EXPECT_DOUBLE_EQ(*bench::speed_up(figures, line.model, "A100", "V100", "tf32"),
                     line.p4d_tf32 / line.p3dn_fp32);
    EXPECT_DOUBLE_EQ(*bench::speed_up(figures, line.model, "A100", "V100", "fp16"),
                     line.p4d_fp16 / line.p3dn_fp16);
  }
  EXPECT_EQ(of_machine("bert-128", "A100", "fp16"), 2936);
  EXPECT_EQ(of_machine("bert-512", "A100", "fp16"), 596);
  std::vector<double> bert;
  for (const auto& one : figures) {
    if (one.model.starts_with("bert") && one.source.starts_with("AWS"))
      bert.push_back(one.samples_per_second);
  }
  EXPECT_THAT(bert, testing::UnorderedElementsAre(372, 1493, 2936, 77, 303, 596));
  // No ratio is of two publishers: AWS prints no V100 figure of BERT, and NVIDIA both.
  EXPECT_NEAR(*bench::speed_up(figures, "bert-128", "A100", "V100", "fp16"), 2871.89 / 1443.05, 1e-9);

  std::vector<std::string> printed;
  for (const auto& one : bench::read_printed_speed_ups(in_bench("printed_speed_ups.csv"))) {
    printed.push_back(one.model + " " + one.of + "/" + one.over + " " + one.precision + " x" +
                      std::to_string(one.gpus) + " " + std::to_string(one.times).substr(0, 3));
  }
  EXPECT_THAT(printed, ElementsAre("bert-128 P4d/P3dn fp16 x1 2.2", "bert-128 P4d/P3dn fp16 x4 2.0",
                                   "bert-128 P4d/P3dn fp16 x8 2.1", "bert-128 P4d/P3 fp16 x1 2.8",
                                   "bert-128 P4d/P3 fp16 x4 3.3", "bert-128 P4d/P3 fp16 x8 2.9",
                                   "bert-512 P4d/P3dn fp16 x1 2.6", "bert-512 P4d/P3dn fp16 x4 2.6",
                                   "bert-512 P4d/P3dn fp16 x8 2.4", "bert-512 P4d/P3 fp16 x1 2.6",
                                   "bert-512 P4d/P3 fp16 x4 2.7", "bert-512 P4d/P3 fp16 x8 3.1"));
}

}}  // namespace holdfast::test
