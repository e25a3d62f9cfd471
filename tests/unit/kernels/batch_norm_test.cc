// The kernels as CPU threads run them: the same sources that NVRTC compiles for a GPU.
#include "holdfast/kernels/batch_norm.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/kernels/compiler.h"
#include "holdfast/kernels/kernel.h"
#include "unit/kernels/batch_norm_cases.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(FusedBatchNorm, AgreesWithSeparateOperatorsInFloat64) {
  expect_all_combinations({3, 40, 5, 7}, at::kCPU);
}

// One pack of channels, packs that fill no warp, several groups; one slab and many, with rows left over.
TEST(FusedBatchNorm, TakesEveryShape) {
  for (const Shape& shape :
       {Shape{3, 64, 13, 13}, Shape{4, 24, 21, 21}, Shape{3, 8, 31, 23}, Shape{2, 2048, 2, 3},
        Shape{2, 520, 4, 5}, Shape{5, 16, 1, 1}, Shape{1, 512, 4, 1}, Shape{70, 256, 1, 1}}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      expect_exact_enough({.type = type, .shape = shape, .relu = true}, at::kCPU);
      expect_exact_enough({.type = type, .shape = shape, .add = true, .relu = true}, at::kCPU);
    }
  }
}

TEST(FusedBatchNorm, LosesNothingFarFromZero) {
  expect_exact_enough({.shape = {16, 16, 20, 20}, .training = false, .mean = 2000}, at::kCPU);
  NormCase one{.shape = {16, 16, 20, 20}, .mean = 2000};
  NormRun run = inputs_of(one, at::kCPU);
  run.variance.zero_();
  const at::Tensor variance = run.x.detach().to(at::kDouble).var({0, 2, 3});
  forward_and_backward(run, one);
  EXPECT_LE(distance(run.variance / 0.3, variance), 1e-5);  // sums of squares would be wrong by a tenth
}

TEST(FusedBatchNorm, HasTheSameBitsEveryTimeAndForAnyNumberOfThreads) {
  const NormCase one{.type = at::kBFloat16, .shape = {6, 72, 20, 20}, .add = true, .relu = true};
  const int threads = at::get_num_threads();
  NormRun first = inputs_of(one, at::kCPU);
  forward_and_backward(first, one);
  for (const int other : {1, 3, threads}) {
    at::set_num_threads(other);
    NormRun again = inputs_of(one, at::kCPU);
    forward_and_backward(again, one);
    expect_same_bits(first, again);
  }
}

TEST(FusedBatchNorm, GivesTheSameWithoutAGraph) {
  for (const bool add : {false, true}) {
    const NormCase one{.type = at::kHalf, .add = add, .relu = true};
    NormRun run = inputs_of(one, at::kCPU);
    NormRun bare = inputs_of(one, at::kCPU);
    forward_and_backward(run, one);
    const at::NoGradGuard no_grad;
    forward_and_backward(bare,
                         {.type = at::kHalf, .add = add, .relu = true, .main = false, .shortcut = false});
    EXPECT_TRUE(bare.y.main.equal(run.y.main));
    EXPECT_FALSE(bare.y.main.requires_grad());
  }
}

TEST(FusedBatchNorm, LetsNanThroughAsTorchDoes) {
  const NormCase one{.relu = true};
  NormRun run = inputs_of(one, at::kCPU);
  run.x.detach()[0][3][0][0].fill_(NAN);
  forward_and_backward(run, one);
  const at::Tensor wrong = run.y.main.detach().isnan().sum({0, 2, 3});
  EXPECT_EQ(wrong.nonzero().numel(), 1);
  EXPECT_EQ(wrong[3].item<std::int64_t>(), 4 * 7 * 7);
  EXPECT_TRUE(run.x.grad()[1][3].isnan().all().item<bool>());
  // A ReLU that sees NaN is open.
  const at::Tensor passed = (run.gradient + run.gradient2).sum({0, 2, 3});
  EXPECT_NEAR(run.bias.grad()[3].item<double>(), passed[3].item<double>(), 1e-4);
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(FusedBatchNorm, RefusesWhatItCannotDoAndSaysWhatToDo) {
  const NormCase one;
  const auto with = [&](const auto& change) {
    NormCase bare = one;
    NormRun run = inputs_of(one, at::kCPU);
    change(run, bare);
    return refusal([&] { forward_and_backward(run, bare); });
  };
  EXPECT_EQ(with([](NormRun&, NormCase&) {}), "accepted");
  EXPECT_THAT(with([](NormRun& run, NormCase&) { run.x = run.x.contiguous(); }),
              AllOf(HasSubstr("channels_last"), HasSubstr("--channels-last")));
  EXPECT_THAT(with([](NormRun& run, NormCase&) { run.x = run.x.to(at::kDouble); }),
              AllOf(HasSubstr("Double"), HasSubstr("aten")));
  EXPECT_THAT(with([](NormRun& run, NormCase&) {
                run.x = run.x.narrow(1, 0, 6).contiguous(at::MemoryFormat::ChannelsLast);
              }),
              AllOf(HasSubstr("6 channels"), HasSubstr("multiple of 4"), HasSubstr("width")));
  EXPECT_THAT(with([](NormRun& run, NormCase&) {
                run.x = run.x.to(at::kHalf).narrow(1, 0, 12).contiguous(at::MemoryFormat::ChannelsLast);
              }),
              AllOf(HasSubstr("12 channels"), HasSubstr("multiple of 8")));
  EXPECT_THAT(with([](NormRun& run, NormCase&) { run.weight = run.weight.to(at::kHalf); }),
              AllOf(HasSubstr("weight"), HasSubstr("autocast")));
  EXPECT_THAT(with([](NormRun& run, NormCase&) { run.mean = at::Tensor(); }),
              HasSubstr("running_mean is missing"));
  EXPECT_THAT(with([](NormRun& run, NormCase& changed) {
                changed.add = true;
                run.z = run.x.narrow(0, 0, 2);
              }),
              HasSubstr("shape"));
  EXPECT_THAT(with([](NormRun& run, NormCase&) {
                run.x = run.x.narrow(0, 0, 1).narrow(2, 0, 1).narrow(3, 0, 1).contiguous(
                    at::MemoryFormat::ChannelsLast);
              }),
              HasSubstr("larger batch"));
  EXPECT_THAT(with([](NormRun& run, NormCase&) { run.x = run.x.to(at::kMeta); }), HasSubstr("on meta"));
}

TEST(FusedBatchNorm, HasNoSecondDerivativeAndSaysSo) {
  const NormCase one;
  NormRun run = inputs_of(one, at::kCPU);
  run.y = fused_batch_norm(
      run.x, {.weight = run.weight, .bias = run.bias, .running_mean = run.mean, .running_var = run.variance});
  EXPECT_THAT(refusal([&] {
                torch::autograd::grad({run.y.main.sum()}, {run.x}, {}, std::nullopt, /*create_graph=*/true);
              }),
              HasSubstr("second derivative"));
}

// Where there is an NVRTC: the sources are right for the other compiler, too. It needs no GPU.
TEST(Kernels, CompileForGpus) {
  if (const std::string why = kernels::why_no_compiler(); !why.empty()) GTEST_SKIP() << why;
  const bool all = std::getenv("HOLDFAST_NIGHTLY") != nullptr;
  std::vector<std::string> types;
  for (const kernels::KernelName& kernel : kernels::known_kernels()) {
    if (all || kernel.type.find("InputGradient") != std::string::npos) types.push_back(kernel.type);
  }
  EXPECT_EQ(types.size(), all ? 42u : 6u);
  if (!all) types.push_back("holdfast::kernels::ChannelMoments<float>");
  if (!all) types.push_back("holdfast::kernels::OutputGradients<holdfast::kernels::Half, true, true, true>");
  if (!all) types.push_back("holdfast::kernels::Apply<float, true, true, true>");
  const std::vector<int> known = kernels::known_architectures();
  const kernels::Source& source = *kernels::known_kernels().front().source;
  for (const int architecture : {75, 80}) {  // BF16 is converted in two ways
    if (std::find(known.begin(), known.end(), architecture) == known.end()) continue;
    const kernels::Compiled compiled = kernels::compile(source, types, architecture, /*portable=*/true);
    ASSERT_EQ(compiled.symbols.size(), types.size());
    for (const std::string& symbol : compiled.symbols) {
      EXPECT_THAT(compiled.image, HasSubstr(".entry " + symbol + "("));
    }
  }
  try {
    kernels::compile(source, {"holdfast::kernels::Apply<char*, true>"}, 80);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Apply<char*, true>"), HasSubstr("sm_80"), HasSubstr("error")));
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
  }
}

}}  // namespace holdfast::test
