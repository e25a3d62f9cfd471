// Inception v3 and v4 against the numbers that torchvision and timm gave.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "support/nightly.h"
#include "unit/models/inceptions.h"
#include "unit/models/oracle_fill.h"

namespace holdfast::test { namespace {

struct InceptionOracle {
  const char* test;
  const char* model;
  bool auxiliary;
  std::int64_t pixels;
  bool nightly;
  double loss, logits, logits_abs, grad_norm, first_grad, last_grad;
  double first_logits[4], last_logit;
  double mean, variance, parameters, parameters_abs;
  double evaluation, next_loss;  // 0: not known
};

void PrintTo(const InceptionOracle& oracle, std::ostream* out) { *out << oracle.test; }

constexpr InceptionOracle kInceptions[] = {
    {"V3At139",
     "inception_v3",
     false,
     139,
     false,
     7.23621689,
     -44.2435088,
     1007.30187,
     1215.66971,
     262.042971,
     14.2204684,
     {1.40303876, 0.538079408, 0.164974669, -0.83007436},
     -0.875197254,
     20.0224711,
     16557.403,
     17581.1874,
     795748.646,
     0,
     0},
    {"V3At299",
     "inception_v3",
     false,
     299,
     true,
     7.09391484,
     -41.6219465,
     936.056121,
     484.712176,
     109.487818,
     13.0630945,
     {1.34841412, 0.0391287128, 0.0977021747, -0.22155924},
     -0.288569843,
     20.0807554,
     16623.6767,
     17581.1874,
     795748.646,
     9.31362655,
     6.74936663},
    {"V3AuxiliaryAt299",
     "inception_v3",
     true,
     299,
     true,
     10.2976515,
     -69.945779,
     935.476906,
     2036.02914,
     444.041812,
     13.0854754,
     {0.150923379, -0.113380707, 0.248757534, 0.587696005},
     -0.627622047,
     24.7170506,
     17472.2781,
     18335.9011,
     888164.013,
     8.77729131,
     9.85543315},
    {"V4At139",
     "inception_v4",
     false,
     139,
     false,
     6.80851568,
     48.7520535,
     1038.07035,
     24006.7428,
     4606.30121,
     12.5583936,
     {0.185266862, -0.202288549, -0.124893229, -0.821550727},
     0.681548416,
     -4.71197355,
     30357.2102,
     31668.2242,
     1453702.04,
     6.75186104,
     6.7248167},
    {"V4At299",
     "inception_v4",
     false,
     299,
     true,
     6.80778388,
     50.1278779,
     940.791107,
     9198.3139,
     1858.75915,
     11.4183347,
     {0.440805249, -0.43098134, -0.102229267, -0.601134777},
     0.634812861,
     -2.75835895,
     30478.7515,
     31668.2242,
     1453702.04,
     6.31059592,
     6.82394159},
};

using InceptionsOracle = OnOneThread<testing::TestWithParam<InceptionOracle>>;

TEST_P(InceptionsOracle, AgreeInFloat64) {
  const InceptionOracle& oracle = GetParam();
  if (oracle.nightly && !nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 compares whole pictures, too";
  const PictureModel model = undrawn(oracle.model, ModelVariant::torchvision, oracle.auxiliary);
  torch::nn::Module& net = *model.module;
  net.to(at::kDouble);
  oracle_fill(net);
  expect_parameters(net, oracle.parameters, oracle.parameters_abs);

  const at::Tensor pictures = oracle_pictures(2, oracle.pixels);
  const at::Tensor labels = at::tensor({std::int64_t{11}, std::int64_t{48}});
  // The statistics move once.
  const std::vector<at::Tensor> outputs = model.outputs(pictures);
  ASSERT_EQ(outputs.size(), oracle.auxiliary ? 2u : 1u);
  at::Tensor loss = at::cross_entropy_loss(outputs[0], labels);
  if (oracle.auxiliary) {
    loss = loss + 0.4 * at::cross_entropy_loss(outputs[1], labels);
    expect_close(outputs[1].sum().item<double>(), -82.6990214, "sum of the auxiliary logits");
    expect_close(outputs[1].abs().sum().item<double>(), 1515.51034, "absolute sum of the auxiliary logits");
  }
  loss.backward();
  expect_close(loss.item<double>(), oracle.loss, "loss");
  expect_close(outputs[0].sum().item<double>(), oracle.logits, "sum of the logits");
  expect_close(outputs[0].abs().sum().item<double>(), oracle.logits_abs, "absolute sum of the logits");
  for (int i = 0; i < 4; ++i) {
    expect_close(outputs[0][0][i].item<double>(), oracle.first_logits[i], "logit " + std::to_string(i));
  }
  expect_close(outputs[0][1][-1].item<double>(), oracle.last_logit, "last logit");
  const std::vector<at::Tensor> parameters = net.parameters();
  expect_close(gradient_norm(net), oracle.grad_norm, "norm of the gradients");
  expect_close(parameters.front().grad().norm().item<double>(), oracle.first_grad, "first gradient");
  expect_close(parameters[parameters.size() - 2].grad().norm().item<double>(), oracle.last_grad,
               "last weight's gradient");
  expect_statistics(net, oracle.mean, oracle.variance);
  if (oracle.evaluation == 0) return;

  const at::NoGradGuard no_grad;
  net.eval();
  expect_close(model.loss(pictures, labels).item<double>(), oracle.evaluation, "evaluation");
  net.train();
  for (const at::Tensor& parameter : parameters) parameter.add_(parameter.grad(), -1e-4);
  expect_close(model.loss(pictures, labels).item<double>(), oracle.next_loss, "loss after a step", 1e-7);
}

INSTANTIATE_TEST_SUITE_P(Each, InceptionsOracle, testing::ValuesIn(kInceptions),
                         [](const auto& info) { return std::string(info.param.test); });

}}  // namespace holdfast::test
