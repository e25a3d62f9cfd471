#include "holdfast/precision/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <stdexcept>

#include "holdfast/base/error.h"
#include "holdfast/precision/autocast.h"

namespace holdfast::test { namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using enum Precision;

DeviceTraits gpu(std::string name, int capability) {
  return {.type = c10::DeviceType::CUDA, .name = std::move(name), .capability = capability};
}

std::string refusal(Precision precision, const DeviceTraits& device) {
  try {
    require_supported(precision, device);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Precision, WordsGoThereAndBack) {
  for (const char* word : {"fp32", "tf32", "fp16", "bf16"}) EXPECT_EQ(word_of(parse_precision(word)), word);
  EXPECT_EQ(parse_precision("fp16"), fp16);
  for (const char* word : {"", "FP16", "half", "fp8"})
    EXPECT_THROW(parse_precision(word), UsageError) << word;
}

TEST(Precision, EachDeviceHasItsChoices) {
  EXPECT_THAT(supported_on({}), ElementsAre(fp32, fp16, bf16)) << "a CPU";
  EXPECT_THAT(supported_on(gpu("Tesla K80", 37)), ElementsAre(fp32));
  EXPECT_THAT(supported_on(gpu("Tesla P100-PCIE-16GB", 60)), ElementsAre(fp32, fp16));
  EXPECT_THAT(supported_on(gpu("Tesla V100-SXM2-16GB", 70)), ElementsAre(fp32, fp16));
  EXPECT_THAT(supported_on(gpu("Tesla T4", 75)), ElementsAre(fp32, fp16));
  EXPECT_THAT(supported_on(gpu("NVIDIA A100-SXM4-40GB", 80)), ElementsAre(fp32, tf32, fp16, bf16));
  EXPECT_THAT(supported_on(gpu("NVIDIA H200", 90)), ElementsAre(fp32, tf32, fp16, bf16));
  EXPECT_THAT(supported_on({.type = c10::DeviceType::XPU, .name = "xpu"}), ElementsAre(fp32));
}

TEST(Precision, ARefusalNamesTheDeviceItsNeedAndTheChoices) {
  const DeviceTraits v100 = gpu("Tesla V100-SXM2-16GB", 70);
  EXPECT_EQ(
      refusal(tf32, v100),
      "tf32 is not for Tesla V100-SXM2-16GB (compute capability 7.0): it needs an NVIDIA GPU of compute "
      "capability 8.0 (A100, P4d) or newer; here choose fp32 or fp16");
  EXPECT_THAT(refusal(bf16, v100), AllOf(HasSubstr("V100"), HasSubstr("fp32 or fp16")));
  EXPECT_THAT(refusal(tf32, {}), AllOf(HasSubstr("this CPU"), HasSubstr("fp32, fp16 or bf16")));
  EXPECT_THAT(refusal(fp16, gpu("Tesla K80", 37)), HasSubstr("6.0"));
  EXPECT_EQ(refusal(fp16, v100), "");
  EXPECT_NO_THROW(require_supported(bf16, at::Device(at::kCPU)));
  EXPECT_THROW(require_supported(tf32, at::Device(at::kCPU)), UsageError);
}

TEST(Precision, ADeviceThatIsNotThereIsAnError) {
  EXPECT_THROW(require_supported(fp32, at::Device(at::kCUDA, 99)), UsageError);
}

TEST(Precision, ImpliesTypeAndScaler) {
  EXPECT_EQ(autocast_type(fp32), std::nullopt);
  EXPECT_EQ(autocast_type(tf32), std::nullopt);
  EXPECT_EQ(autocast_type(fp16), at::kHalf);
  EXPECT_EQ(autocast_type(bf16), at::kBFloat16);
  for (const Precision precision : {fp32, tf32, bf16}) EXPECT_FALSE(needs_scaler(precision));
  EXPECT_TRUE(needs_scaler(fp16));
}

TEST(Precision, TheMathModeSwitchesTF32InBothLibraries) {
  const at::Context& context = at::globalContext();
  set_math_mode(tf32);
  EXPECT_TRUE(context.allowTF32CuBLAS());
  EXPECT_TRUE(context.allowTF32CuDNN());
  for (const Precision exact : {fp32, fp16, bf16}) {
    set_math_mode(tf32);
    set_math_mode(exact);
    EXPECT_FALSE(context.allowTF32CuBLAS()) << word_of(exact);
    EXPECT_FALSE(context.allowTF32CuDNN()) << "LibTorch's own default is on";
  }
}

// What a product of two FP32 matrices has in the scope.
at::ScalarType product_type() {
  const at::Tensor ones = at::ones({2, 2});
  return at::mm(ones, ones).scalar_type();
}

TEST(Autocast, CastsInsideAndNotOutside) {
  {
    const AutocastGuard autocast(bf16, at::kCPU);
    EXPECT_EQ(product_type(), at::kBFloat16);
    const at::Tensor half = at::ones({2, 2}, at::kHalf);
    EXPECT_EQ(at::mse_loss(half, half).scalar_type(), at::kFloat) << "needs range";
  }
  EXPECT_EQ(product_type(), at::kFloat);
  const AutocastGuard autocast(fp16, at::kCPU);
  EXPECT_EQ(product_type(), at::kHalf);
}

TEST(Autocast, OfExactNumbersChangesNothing) {
  for (const Precision precision : {fp32, tf32}) {
    const AutocastGuard autocast(precision, at::kCPU);
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_EQ(product_type(), at::kFloat);
  }
}

TEST(Autocast, NestsAndRestoresWhatItFound) {
  const auto type = at::autocast::get_autocast_dtype(at::kCPU);
  {
    const AutocastGuard outer(bf16, at::kCPU);
    {
      const AutocastGuard inner(fp16, at::kCPU);
      EXPECT_EQ(product_type(), at::kHalf);
      {
        const AutocastGuard exact(fp32, at::kCPU);
        EXPECT_EQ(product_type(), at::kFloat);
      }
      EXPECT_EQ(product_type(), at::kHalf);
    }
    EXPECT_EQ(product_type(), at::kBFloat16);
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), type);
}

TEST(Autocast, BelongsToOneDeviceType) {
  const AutocastGuard autocast(fp16, at::kCUDA);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(product_type(), at::kFloat);
}

TEST(Autocast, EndsWithAnException) {
  EXPECT_THROW(
      {
        const AutocastGuard outer(bf16, at::kCPU);
        const AutocastGuard inner(fp16, at::kCPU);
        throw std::runtime_error("the model failed");
      },
      std::runtime_error);
  EXPECT_EQ(product_type(), at::kFloat);
  EXPECT_EQ(at::autocast::increment_nesting(), 1) << "no scope is open";
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

TEST(Autocast, TheOutermostScopeForgetsTheCastWeights) {
  at::Tensor weight = at::ones({2, 2}).requires_grad_();
  const at::Tensor input = at::ones({2, 2});
  const auto product = [&] { return at::mm(input, weight)[0][0].item<float>(); };
  const auto update = [&] {
    const at::NoGradGuard no_grad;
    weight.mul_(2);
  };
  {
    const AutocastGuard outer(bf16, at::kCPU);
    EXPECT_EQ(product(), 2);
    update();
    {
      const AutocastGuard inner(bf16, at::kCPU);
      EXPECT_EQ(product(), 2) << "kept: this is why a scope must end before an update";
    }
    EXPECT_EQ(product(), 2) << "an inner scope's end forgets nothing";
  }
  {
    const AutocastGuard next(bf16, at::kCPU);
    EXPECT_EQ(product(), 4);
  }
  update();
  const AutocastGuard last(bf16, at::kCPU);
  EXPECT_EQ(product(), 8);
}

}}  // namespace holdfast::test
