#include "job.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "examples/models/picture_model.h"

namespace holdfast::bench {
namespace {

// With 0.01 a ResNet's loss on noise rises within ten steps. A difference of 1e-7 in its weights then becomes
// 3 in its loss, and nothing could be compared.
constexpr double kRate = 1e-4;
constexpr double kMlpRate = 0.01;
constexpr double kMomentum = 0.9;
constexpr double kWeightDecay = 5e-4;
constexpr std::int64_t kMlpInputs = 784;
constexpr std::int64_t kMlpWidth = 128;

// A very small network: it shows the cost of a step beside its arithmetic.
class Mlp : public torch::nn::Module {
 public:
  Mlp()
      : first_(register_module("0", torch::nn::Linear(kMlpInputs, kMlpWidth))),
        second_(register_module("2", torch::nn::Linear(kMlpWidth, kMlpWidth))),
        third_(register_module("4", torch::nn::Linear(kMlpWidth, kJobClasses))) {}
  at::Tensor forward(const at::Tensor& x) { return third_(second_(first_(x).relu_()).relu_()); }

 private:
  torch::nn::Linear first_, second_, third_;
};

Workload work_of(const JobOptions& options) {
  Workload work{.module = nullptr, .draw = nullptr, .loss = nullptr};
  std::function<at::Tensor(const at::Tensor&)> forward;
  if (options.model == "mlp") {
    const auto mlp = std::make_shared<Mlp>();
    work.module = mlp;
    forward = [inner = mlp.get()](const at::Tensor& x) { return inner->forward(x); };
  } else {
    const PictureModel model = make_picture_model({.name = options.model,
                                                   .variant = parse_variant(options.variant),
                                                   .num_classes = kJobClasses,
                                                   .dropout = 0});
    work.module = model.module;
    forward = model.forward;
  }
  // On the CPU, so that equal seeds give equal batches.
  work.draw = [options](std::int64_t batch) -> Inputs {
    const at::Tensor pictures = options.model == "mlp"
                                    ? at::randn({batch, kMlpInputs})
                                    : at::randn({batch, 3, options.pixels, options.pixels});
    const at::Tensor labels = at::randint(kJobClasses, {batch}, at::kLong);
    return {{"pictures", pictures.to(options.device)}, {"labels", labels.to(options.device)}};
  };
  work.loss = [forward](const Inputs& inputs) {
    return at::cross_entropy_loss(forward(inputs[0].value), inputs[1].value);
  };
  return work;
}

}  // namespace

std::unique_ptr<Training> our_training(const JobOptions& options, bool amp) {
  torch::manual_seed(1);
  const Precision precision = !amp                      ? Precision::fp32
                              : options.device.is_cpu() ? Precision::bf16
                                                        : Precision::fp16;
  auto training = std::make_unique<Training>(
      work_of(options), options.device,
      TrainingOptions{.precision = precision,
                      .layout = amp ? "nhwc" : "nchw",
                      .optimizer = {.rate = options.model == "mlp" ? kMlpRate : kRate,
                                    .momentum = kMomentum,
                                    .weight_decay = kWeightDecay}});
  training->give(training->work().draw(options.batch));
  return training;
}

}  // namespace holdfast::bench
