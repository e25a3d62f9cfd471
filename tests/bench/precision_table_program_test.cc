// bench_precision_table and bench_step_time as programs, on a tiny scale. No figure is judged here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

Ended program(const std::string& name, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), std::string(HOLDFAST_BIN_DIR) + "/" + name);
  return Subprocess(std::move(arguments)).wait(std::chrono::minutes(4));
}
Ended bench_table(std::vector<std::string> arguments) {
  return program("bench_precision_table", std::move(arguments));
}

void expect_one_line(const Ended& ended, const std::string& words,
                     const std::string& name = "bench_precision_table") {
  EXPECT_NE(ended.exit_code, 0);
  EXPECT_EQ(ended.signal, 0);
  EXPECT_THAT(lines_of(ended.err), SizeIs(1)) << ended.err;
  EXPECT_THAT(ended.err, AllOf(StartsWith(name + ": "), HasSubstr(words)));
}

// By day in one layout, without BF16.
TEST(BenchPrecisionTable, HasARowForEverythingOnACpu) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  std::vector<std::string> words = {"--device",  "cpu",   "--models", "resnet50", "--scale",   "0.001",
                                    "--pixels",  "32",    "--steps",  "1",        "--threads", "1",
                                    "--variant", "table", "--peak",   "fp32=2",   "--output",  output};
  if (!nightly()) words.insert(words.end(), {"--layouts", "nhwc", "--precisions", "fp32,tf32,fp16"});
  const std::size_t rows = nightly() ? 16 : 6;
  const Ended ended = bench_table(words);
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  ASSERT_EQ(all["rows"].size(), rows);
  for (const auto& row : all["rows"]) {
    const bool can = row["mode"] == "eager" && row["precision"] != "tf32";
    ASSERT_EQ(row["measured"].get<bool>(), can) << row;
    if (can) {
      EXPECT_GT(row["samples_per_second"].get<double>(), 0);
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
                    HasSubstr("published, samples/s of one GPU"), HasSubstr("A100/V100"),
                    HasSubstr("goals not measured: no GPU here: ")));
  EXPECT_THAT(lines_of(read_text(output + ".csv")), SizeIs(rows + 1));
  EXPECT_THAT(read_text(output + ".svg"), AllOf(StartsWith("<svg "), HasSubstr("fp16 nhwc eager, batch 2")));
}

TEST(BenchPrecisionTable, TrainsLanguageModelsWithAndWithoutAccumulation) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  const Ended ended = bench_table({"--device", "cpu", "--rows", "bert-128/eager/fp32,bert-128/eager/bf16",
                                   "--tiny-bert", "--threads", "1", "--scale", "0.03", "--seconds", "0.05",
                                   "--accumulate", "1,3", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  ASSERT_EQ(all["rows"].size(), 4u);
  for (const auto& row : all["rows"]) {
    ASSERT_TRUE(row["measured"].get<bool>()) << row;
    EXPECT_EQ(row["unit"], "sequences");
    EXPECT_EQ(row["size"], 128);
    EXPECT_THAT(row["note"].get<std::string>(), HasSubstr("2 layers"));
    EXPECT_NEAR(row["first_loss"].get<double>(), 7.6, 0.5);  // a guess among 1000 words and among 2
    EXPECT_GT(row["published"]["A100"]["samples_per_second"].get<double>(), 100);
  }
  EXPECT_EQ(all["rows"][1]["accumulation"], 3);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("2x3"), HasSubstr("seq/s")));
}

TEST(BenchPrecisionTable, MakesUpdatesOfAGlobalBatchOfPassesThatFit) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  const auto row_with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"--device",    "cpu",       "--rows", "bert-128/fp32/eager/global",
                                    "--tiny-bert", "--threads", "1",      "--scale",
                                    "0.001",       "--steps",   "1",      "--output",
                                    output};
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = bench_table(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
    return nlohmann::json::parse(read_text(output + ".json"))["rows"].at(0);
  };
  const auto whole = row_with({});
  ASSERT_TRUE(whole["measured"].get<bool>()) << whole;
  EXPECT_EQ(whole["global"], 66);  // 65536 a thousandth
  EXPECT_EQ(whole["accumulation"], 16);
  EXPECT_EQ(whole["batch"], 5);
  const auto given = row_with({"--micro-batch", "2"});
  EXPECT_EQ(given["batch"], 2);
  EXPECT_EQ(given["accumulation"], 33);
  // What it needs is estimated, and the same for every batch: room for the weights and for some samples.
  const auto none = row_with({"--free", "0.004"});
  ASSERT_FALSE(none["measured"].get<bool>());
  const double needed = none["needed_bytes"].get<double>();
  bool smaller = false;
  for (const double share : {0.95, 0.9, 0.8, 0.7, 0.6, 0.5}) {
    const auto row = row_with({"--free", std::to_string(share * needed / 1e9)});
    if (!row["measured"].get<bool>() || row["batch"] == 5) continue;
    smaller = true;
    EXPECT_LT(row["batch"].get<int>(), 5);
    EXPECT_GE(row["batch"].get<int>() * row["accumulation"].get<int>(), 66);
    EXPECT_THAT(row["note"].get<std::string>(), HasSubstr("5 in a pass do not fit"));
    if (!nightly()) break;
  }
  EXPECT_TRUE(smaller);
}

TEST(BenchPrecisionTable, TrainsWhatIsBesideTheTable) {
  if (!nightly())
    GTEST_SKIP() << "up to 209 GFLOP a picture: HOLDFAST_NIGHTLY=1; models_test counts them by day";
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  constexpr std::size_t rows = 3;
  const Ended ended =
      bench_table({"--device", "cpu", "--rows",
                   "ssd300-matched/fp32/nchw/eager,inception3-aux/fp32/nchw/eager,ssd300-vgg/fp32/nchw/eager",
                   "--micro-batch", "2", "--steps", "1", "--no-update", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  ASSERT_EQ(all["rows"].size(), rows);
  const double flops[] = {34.275e9, 94.749e9, 208.838e9};  // in the table's order
  const char* const models[] = {"inception3-aux", "ssd300-matched", "ssd300-vgg"};
  for (std::size_t i = 0; i < rows; ++i) {
    const auto& row = all["rows"][i];
    EXPECT_EQ(row["model"], models[i]);
    ASSERT_TRUE(row["measured"].get<bool>()) << row;
    EXPECT_NEAR(row["train_flops_per_sample"].get<double>() / flops[i], 1, 1e-4);
    EXPECT_FALSE(row.contains("published"));
    if (i == 0) continue;  // dropout draws anew
    EXPECT_EQ(row["loss"], row["first_loss"]) << "without updates nothing moves";
  }
}

TEST(BenchPrecisionTable, SaysWhatARowNeedsThatDoesNotFit) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  const Ended ended =
      bench_table({"--device", "cpu", "--rows", "resnet50/fp32/nchw/eager,bert-512/fp32/x1/eager", "--pixels",
                   "64", "--scale", "1", "--free", "0.6", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto all = nlohmann::json::parse(read_text(output + ".json"));
  ASSERT_EQ(all["rows"].size(), 2u);
  const auto& batch = all["rows"][0];
  EXPECT_THAT(
      batch["why"].get<std::string>(),
      AllOf(HasSubstr("(estimated from a batch of 2) and 0.57 GB are free"), HasSubstr("fits: --scale 0.")));
  EXPECT_GT(batch["needed_bytes"].get<double>(), 0.6e9);
  EXPECT_GT(batch["batch_that_fits"].get<int>(), 2);
  EXPECT_LT(batch["batch_that_fits"].get<int>(), 224);
  const auto& weights = all["rows"][1];
  EXPECT_THAT(
      weights["why"].get<std::string>(),
      AllOf(HasSubstr("5.38 GB for its weights, gradients and slots alone"), HasSubstr("no batch fits")));
}

TEST(BenchPrecisionTable, CountsNoSlotsWithoutUpdates) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  const Ended ended = bench_table({"--device", "cpu", "--rows", "bert-512/fp32/x1/eager", "--no-update",
                                   "--free", "0.6", "--output", output});
  ASSERT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  const auto row = nlohmann::json::parse(read_text(output + ".json"))["rows"][0];
  EXPECT_THAT(row["why"].get<std::string>(), HasSubstr("2.69 GB for its weights"));
}

// As long as it takes to interrupt it: a machine may be so quick, or so busy, that all is done before. The
// first row has smaller passes than were planned.
TEST(BenchPrecisionTable, GoesOnAfterAnInterruption) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  std::vector<std::string> command;
  Ended first;
  for (int steps = 10; steps <= 100000; steps *= 10) {
    command = {"--device",
               "cpu",
               "--rows",
               "bert-128/eager/fp32/global,bert-128/eager/bf16",
               "--tiny-bert",
               "--scale",
               "0.0003",
               "--warm-up",
               "1",
               "--threads",
               "1",
               "--free",
               "0.006",
               "--output",
               output,
               "--steps",
               std::to_string(steps)};
    std::vector<std::string> whole = command;
    whole.insert(whole.begin(), std::string(HOLDFAST_BIN_DIR) + "/bench_precision_table");
    Subprocess run(whole);
    // The first row, not its columns' names; from then on it can be kept.
    run.wait_until([&] { return run.out().find("bert-128   torchvision") != std::string::npos; });
    run.send(SIGTERM);
    first = run.wait();
    if (first.exit_code != 0) break;
  }
  ASSERT_EQ(first.exit_code, 75) << first.out << first.err;
  EXPECT_THAT(first.out, HasSubstr("the same command goes on"));
  const auto kept = nlohmann::json::parse(read_text(output + ".json"))["rows"];
  ASSERT_GE(kept.size(), 1u);
  ASSERT_LE(kept.size(), 4u);

  std::vector<std::string> other = command;
  other[6] = "0.05";
  const Ended refused = bench_table(other);
  EXPECT_EQ(refused.exit_code, 78) << refused.out << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr("scale"), HasSubstr("--fresh")));

  // What is left is short: the steps are an option of the table, the rows asked for are not.
  std::vector<std::string> less = command;
  less[3] = "bert-128/eager/fp32/global";
  const Ended second = bench_table(less);
  ASSERT_EQ(second.exit_code, 0) << second.out << second.err;
  EXPECT_THAT(second.out, HasSubstr("rows were measured before"));
  const auto again = nlohmann::json::parse(read_text(output + ".json"))["rows"];
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0], kept[0]);  // bit for bit: not measured again
  EXPECT_FALSE(std::filesystem::exists(output + ".run"));
  // A complete table, too: the same build has measured this row.
  const Ended third = bench_table(less);
  ASSERT_EQ(third.exit_code, 0) << third.out << third.err;
  EXPECT_THAT(third.out, HasSubstr("kept: rows of " + output + ".json"));
  EXPECT_EQ(nlohmann::json::parse(read_text(output + ".json"))["rows"][0], kept[0]);
  less.push_back("--fresh");
  const Ended fourth = bench_table(less);
  ASSERT_EQ(fourth.exit_code, 0) << fourth.out << fourth.err;
  EXPECT_NE(nlohmann::json::parse(read_text(output + ".json"))["rows"][0]["seconds"], kept[0]["seconds"]);
}

TEST(BenchPrecisionTable, BeginsAnewOnlyWhereItsOwnRunIs) {
  const TemporaryFolder folder;
  const std::string output = folder.path() / "result";
  std::filesystem::create_directory(output + ".run");
  write_text(output + ".run/precious", "!");
  const Ended ended =
      bench_table({"--device", "cpu", "--rows", "resnet50/tf32/nchw/eager", "--fresh", "--output", output});
  expect_one_line(ended, "is no run of this bench");
  EXPECT_EQ(read_text(output + ".run/precious"), "!");
}

TEST(BenchPrecisionTable, RefusesInOneLineWhatCannotWork) {
  expect_one_line(bench_table({"--fast"}), "--fast");
  expect_one_line(bench_table({"--rows", "resnet50/fp8"}), "there is no row 'resnet50/fp8'");
  expect_one_line(bench_table({"--steps", "3", "--seconds", "2"}), "--s");
  expect_one_line(bench_table({"--memory", "64"}), "32 or 40");
  expect_one_line(bench_table({"--device", "cpu", "--output", "/nowhere/at/all"}),
                  "cannot write /nowhere/at/all.csv");
  if (!nightly()) return;  // the others are of these kinds
  expect_one_line(bench_table({"--models", "resnet51"}), "knows no 'resnet51': choose from resnet50");
  expect_one_line(bench_table({"--precisions", "fp8"}), "knows no 'fp8'");
  expect_one_line(bench_table({"--layouts", "nhcw"}), "knows no 'nhcw'");
  expect_one_line(bench_table({"--rows", "bert/nchw"}), "there is no row 'bert/nchw'");
  expect_one_line(bench_table({"--seconds", "0"}), "--seconds");
  expect_one_line(bench_table({"--free", "-1"}), "--free");
  expect_one_line(bench_table({"--accumulate", "0"}), "--accumulate");
  expect_one_line(bench_table({"--peers", "eager+quick"}), "--peers knows no 'quick'");
  expect_one_line(bench_table({"--variant", "v2"}), "knows no 'v2'");
  expect_one_line(bench_table({"--scale", "-1"}), "--scale");
  expect_one_line(bench_table({"--device", "cpu", "--peak", "fast"}), "--peak 'fast'");
  expect_one_line(bench_table({"--device", "cpu", "--published", "/nowhere"}), "cannot read /nowhere");
}

TEST(BenchPrecisionTable, TeachesByHelp) {
  const Ended ended = bench_table({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* word :
       {"torchvision",   "table",          "227",         "--rows",
        "--seconds",     "bert/eager/x16", "--peers",     "--fresh",
        "--rows all",    "global",         "ssd300-vgg",  "inception3-aux",
        "--micro-batch", "LAMB",           "OUTPUT.run",  "--scale",
        "--memory",      "--peak",         "--published", "TF32 in NCHW against FP16 in NHWC",
        "1536/3072"}) {
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

}}  // namespace holdfast::test
