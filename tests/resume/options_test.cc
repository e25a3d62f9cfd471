// The command line: usage errors end with 64 in one line, changed options end with 78 and name each, what is
// free stays free, and the ways to choose where to begin.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Wrong {
  std::string name;
  std::vector<std::string> arguments;
  std::vector<std::string> says;
  bool nightly = false;  // another of the same kind is refused by day
};
std::ostream& operator<<(std::ostream& out, const Wrong& value) { return out << value.name; }

class UsageErrors : public ::testing::TestWithParam<Wrong> {};

TEST_P(UsageErrors, EndWith64InOneLine) {
  if (GetParam().nightly && !nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 tries it too";
  const ExampleRun run({});
  const Ended ended = run.finish(GetParam().arguments);
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(lines_of(ended.err).size(), 1U) << ended.err;
  for (const auto& words : GetParam().says) EXPECT_THAT(ended.err, HasSubstr(words));
  EXPECT_FALSE(std::filesystem::exists(run.directory())) << "nothing is touched";
}

INSTANTIATE_TEST_SUITE_P(
    All, UsageErrors,
    ::testing::Values(
        Wrong{"Unknown", {"--bach-size", "3"}, {"--bach-size"}},
        Wrong{"StepsAndEpochs", {"--steps", "3", "--epochs", "1"}, {"--steps", "--epochs"}},
        Wrong{"ResumeAndInit", {"--resume-from", "3", "--init-from", "x"}, {"--init-from"}, true},
        Wrong{"MomentumOfAdamW", {"--optimizer", "adamw", "--momentum", "0.5"}, {"--momentum"}},
        Wrong{"HorizonOfConstant",
              {"--schedule", "constant", "--schedule-steps", "10"},
              {"--schedule-steps"},
              true},
        Wrong{
            "WarmupBeyondTheEnd", {"--warmup-steps", "20", "--schedule-steps", "10"}, {"--warmup-steps 20"}},
        Wrong{"EveryWithoutUnit", {"--every", "30"}, {"--every 30", "30s", "500steps"}},
        Wrong{"EveryZero", {"--every", "0steps"}, {"--every 0steps"}, true},
        Wrong{"NoSteps", {"--steps", "0"}, {"--steps"}, true},
        Wrong{"NotANumber", {"--lr", "fast"}, {"--lr"}},
        Wrong{"NegativeRate", {"--lr", "-1"}, {"--lr"}, true}, Wrong{"KeepOne", {"--keep", "1"}, {"keep"}},
        Wrong{"ReadBack", {"--read-back", "tail"}, {"--read-back", "head", "all"}, true},
        Wrong{"WriteLimitNegative", {"--write-limit", "-5"}, {"--write-limit"}, true},
        Wrong{"WriteLimitWithUnit", {"--write-limit", "200MB"}, {"--write-limit"}, true},
        Wrong{"PrecisionUnknown", {"--precision", "fp8"}, {"--precision", "fp16", "bf16"}},
        Wrong{
            "LossScaleOfBf16", {"--precision", "bf16", "--loss-scale", "8"}, {"--loss-scale", "fp16"}, true},
        Wrong{"LossScaleZero", {"--precision", "fp16", "--loss-scale", "0"}, {"--loss-scale"}, true},
        Wrong{"SmoothingAboveOne", {"--label-smoothing", "1.5"}, {"--label-smoothing"}, true},
        Wrong{"NesterovOfLamb", {"--optimizer", "lamb", "--nesterov"}, {"--nesterov", "lamb"}, true},
        Wrong{"FusedWithoutItsLayout", {"--bn", "fused"}, {"--bn fused", "--channels-last"}},
        Wrong{"FusedTooNarrow", {"--bn", "fused", "--channels-last", "--width", "6"}, {"--width", "4"}, true},
        Wrong{"NormsOfCudnn", {"--bn", "cudnn", "--channels-last"}, {"--bn", "aten", "fused"}, true},
        Wrong{"MicroBatchesDoNotDivide",
              {"--batch-size", "127", "--micro-batch-size", "64"},
              {"--batch-size", "127", "make it 126 or 128"}},
        Wrong{"AccumulateOfBefore",
              {"--batch-size", "32", "--accumulate", "4"},
              {"--accumulate", "--batch-size 128 --micro-batch-size 32"}},
        Wrong{"RecipeUnknown", {"--recipe", "95"}, {"--recipe"}, true},
        Wrong{"MomentumOfLamb", {"--optimizer", "lamb", "--momentum", "0.5"}, {"--momentum", "lamb"}, true},
        Wrong{"Stem", {"--stem", "large"}, {"--stem", "imagenet", "cifar"}, true},
        Wrong{"SyntheticCount", {"--data", "synthetic:many"}, {"synthetic:2000"}},
        Wrong{"StrayWord", {"train"}, {"train"}}),
    [](const auto& info) { return info.param.name; });

TEST(Usage, HelpTeachesWithAnExample) {
  const Ended ended = ExampleRun({}).finish({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* words : {"--data synthetic:2000",
                            "--every",
                            "30s",
                            "Exit codes",
                            "75",
                            "--override",
                            "HOLDFAST_TERM_GRACE",
                            "--write-limit",
                            "--read-back",
                            "--second-image",
                            "--precision",
                            "--channels-last",
                            "--label-smoothing",
                            "torch-sgd",
                            "--bn",
                            "--graph",
                            "--recipe",
                            "--micro-batch-size",
                            "holdfast launch --nproc 8",
                            "TORCHELASTIC_ERROR_FILE"}) {
    EXPECT_THAT(ended.out, HasSubstr(words));
  }
}

TEST(Usage, APrecisionThatTheDeviceHasNotIsRefusedWithItsChoices) {
  const ExampleRun run({"--precision", "tf32"});
  const Ended ended = run.finish({}, {{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  EXPECT_EQ(lines_of(ended.err).size(), 1U) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("--precision: tf32 is not for this CPU"));
  EXPECT_THAT(ended.err, HasSubstr("here choose fp32, fp16 or bf16"));
  EXPECT_FALSE(std::filesystem::exists(run.directory()));
}

TEST(Usage, DataThatIsNotThere) {
  const ExampleRun run({"--data", "/nowhere/cifar"});
  const Ended ended = run.finish();
  EXPECT_TRUE(ended.exit_code == 78 || ended.exit_code == 74) << ended.exit_code << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("/nowhere/cifar"));
  EXPECT_EQ(ended.out, "");
}

// Each begins with a copy of a run of four steps.
class Changed : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    begun_ = std::make_unique<ExampleRun>(small());
    const Ended ended = begun_->finish({"--steps", "4", "--no-eval"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
  }
  static void TearDownTestSuite() { begun_.reset(); }
  Changed() : run_(small()) { run_.go_on_from(*begun_); }
  // Starts again with `arguments` in place of the small run's own.
  Ended with(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {program("resnet50_cifar10"), "--checkpoint-dir",
                                        run_.directory().string()};
    if (std::find(arguments.begin(), arguments.end(), "--threads") == arguments.end()) {
      command.insert(command.end(), {"--threads", "1"});
    }
    command.insert(command.end(), arguments.begin(), arguments.end());
    return Subprocess(command, {{"OMP_NUM_THREADS", "1"}}).wait();
  }
  std::size_t attempts() const {
    std::size_t claims = 0;
    for (const auto& entry : std::filesystem::directory_iterator(run_.directory() / "attempts")) {
      if (entry.path().extension().empty()) ++claims;
    }
    return claims;
  }
  static inline std::unique_ptr<ExampleRun> begun_;
  ExampleRun run_;
};

// The batch of a step is the same one.
TEST_F(Changed, OtherPassesAreFreeAndWithdrawThePromiseAloud) {
  const Ended ended = with(small({"--micro-batch-size", "4", "--steps", "8", "--no-eval"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("global batch 16 = 1 rank × 4 × 4 micro-batches"));
  EXPECT_THAT(ended.err, HasSubstr("not bit-exact from here on, because the environment differs: "
                                   "environment.data.accumulation: absent → 4"));
  const Ended same = with(small({"--micro-batch-size", "5", "--steps", "12", "--no-eval"}));
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, Not(HasSubstr("not bit-exact"))) << "4 × 4 again";
}

TEST_F(Changed, EveryOptionOfTheNextStepIsNamed) {
  const std::size_t before = attempts();
  const Ended ended =
      with({"--data", "synthetic:512", "--width", "2", "--batch-size", "32", "--lr", "0.06", "--momentum",
            "0.8", "--weight-decay", "0.001", "--seed", "2", "--warmup-steps", "7"});
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_EQ(ended.out, "");
  for (const char* name : {"batch_size", "lr", "momentum", "weight_decay", "seed", "warmup.steps",
                           "fingerprint", "--override"}) {
    EXPECT_THAT(ended.err, HasSubstr(name));
  }
  EXPECT_EQ(attempts(), before) << "refused before it claims";
}

TEST_F(Changed, HowToWriteIsFree) {
  const Ended ended = with({"--data", "synthetic:256", "--width", "2", "--batch-size", "16", "--lr", "0.05",
                            "--steps", "8", "--every", "2steps", "--no-eval", "--write-limit", "500",
                            "--read-back", "all", "--second-image"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("resuming from step 4"));
  EXPECT_THAT(ended.err, HasSubstr("training waited"));
  EXPECT_THAT(ended.err, HasSubstr("of work was at risk"));
}

TEST_F(Changed, SoAreThePrecisionTheLayoutAndTheLoss) {
  const std::vector<std::string> same = {"--data", "synthetic:256", "--width", "2", "--batch-size",
                                         "16",     "--lr",          "0.05"};
  auto words = same;
  words.insert(words.end(), {"--precision", "bf16", "--channels-last", "--label-smoothing", "0.1",
                             "--optimizer", "torch-sgd"});
  const Ended refused = with(words);
  EXPECT_EQ(refused.exit_code, 78) << refused.err;
  for (const char* name : {"precision", "channels_last", "label_smoothing", "optimizer"}) {
    EXPECT_THAT(refused.err, HasSubstr(name));
  }
  words = same;
  words.insert(words.end(), {"--precision", "bf16", "--override", "precision", "--steps", "6", "--no-eval"});
  const Ended accepted = with(words);
  EXPECT_EQ(accepted.exit_code, 0) << accepted.err;
  EXPECT_EQ(value_of(accepted.last_line(), "step="), "6");
}

TEST_F(Changed, AnotherModelIsRefusedByName) {
  const Ended ended = with({"--data", "synthetic:256", "--width", "4", "--batch-size", "16", "--lr", "0.05"});
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("model/conv1.weight"));
}

TEST_F(Changed, AnotherOptimizerOrScheduleIsRefused) {
  const std::vector<std::string> same = {"--data", "synthetic:256", "--width", "2", "--batch-size",
                                         "16",     "--lr",          "0.05"};
  auto words = same;
  words.insert(words.end(), {"--optimizer", "adamw"});
  Ended ended = with(words);
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("optimizer"));
  words = same;
  words.insert(words.end(), {"--schedule", "constant"});
  ended = with(words);
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("schedule"));
}

TEST_F(Changed, AnOverrideAcceptsThatOneAlone) {
  const std::vector<std::string> other = {"--data",   "synthetic:256", "--width", "2", "--batch-size", "16",
                                          "--lr",     "0.06",          "--seed",  "2", "--steps",      "6",
                                          "--no-eval"};
  auto words = other;
  words.insert(words.end(), {"--override", "lr"});
  Ended ended = with(words);
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("seed"));
  words.insert(words.end(), {"--override", "seed"});
  ended = with(words);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(value_of(ended.last_line(), "step="), "6");
  // From here on the run is one with the new values.
  EXPECT_EQ(with(other).exit_code, 0);
}

TEST_F(Changed, ThePlanOfTheLearningRateIsKeptUnlessTheUserSaysOtherwise) {
  const Ended longer = run_.finish({"--steps", "40", "--no-eval"});
  ASSERT_EQ(longer.exit_code, 0) << longer.err;
  EXPECT_THAT(longer.err, HasSubstr("beyond the end of the learning rate's plan"));
  const Ended other = run_.finish({"--steps", "44", "--no-eval", "--schedule-steps", "64"});
  EXPECT_EQ(other.exit_code, 78) << other.err;
  EXPECT_THAT(other.err, HasSubstr("cosine.steps"));
  const Ended anew =
      run_.finish({"--steps", "44", "--no-eval", "--schedule-steps", "64", "--override", "schedule-steps"});
  EXPECT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, Not(HasSubstr("beyond the end")));
}

TEST_F(Changed, AnOverriddenOptionTakesEffect) {
  const std::vector<std::string> other = {
      "--data",   "synthetic:256",  "--width", "2",          "--batch-size", "16",      "--lr",
      "0.05",     "--weight-decay", "0.5",     "--override", "weight-decay", "--steps", "6",
      "--no-eval"};
  const Ended changed = with(other);
  ASSERT_EQ(changed.exit_code, 0) << changed.err;
  const ExampleRun unchanged(small({"--steps", "6", "--no-eval"}));
  EXPECT_NE(value_of(changed.last_line(), "loss="), value_of(unchanged.finish().last_line(), "loss="));
}

TEST_F(Changed, WhatIsFreeIsFree) {
  const Ended ended =
      run_.finish({"--epochs", "2", "--workers", "0", "--every", "1s", "--every", "7steps", "--keep", "5"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(value_of(ended.last_line(), "step="), "32");
  const Ended shorter = run_.finish({"--steps", "3", "--no-eval"});
  EXPECT_EQ(shorter.exit_code, 0) << shorter.err;
  EXPECT_EQ(value_of(shorter.last_line(), "step="), "32") << "what has been trained stays trained";
}

TEST_F(Changed, AnotherThreadCountWithdrawsThePromiseAloud) {
  auto words = small({"--steps", "6", "--no-eval"});
  words.erase(words.begin() + 6, words.begin() + 8);  // --threads 1
  std::vector<std::string> command = {program("resnet50_cifar10"), "--checkpoint-dir",
                                      run_.directory().string(), "--threads", "2"};
  command.insert(command.end(), words.begin(), words.end());
  const Ended ended = Subprocess(command).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("thread"));
}

TEST_F(Changed, ResumeFromAnEarlierStepGrowsABranchAndDeletesNothing) {
  ASSERT_EQ(run_.finish({"--steps", "12", "--every", "4steps", "--keep", "9", "--no-eval"}).exit_code, 0);
  const auto before = run_.checkpoints();
  const Ended branch = run_.finish({"--steps", "12", "--resume-from", "8", "--keep", "9", "--no-eval"});
  ASSERT_EQ(branch.exit_code, 0) << branch.err;
  read_losses(run_.metrics());  // steps 9…12 again, with equal bits
  const auto after = run_.checkpoints();
  for (const auto& file : before) EXPECT_THAT(after, ::testing::Contains(file));
  EXPECT_GT(after.size(), before.size());
}

TEST_F(Changed, InitFromTakesTheWeightsAlone) {
  const ExampleRun other(small());
  const Ended ended =
      other.finish({"--init-from", run_.checkpoints().back().string(), "--steps", "1", "--no-eval"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(value_of(ended.last_line(), "step="), "1");
  const ExampleRun fresh(small());
  const Ended plain = fresh.finish({"--steps", "1", "--no-eval"});
  EXPECT_NE(value_of(ended.last_line(), "loss="), value_of(plain.last_line(), "loss="));
}

}}  // namespace holdfast::test
