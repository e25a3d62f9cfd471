#include "job.h"

#include <ATen/Parallel.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr double kRate = 0.01;
constexpr double kMomentum = 0.9;
constexpr double kWeightDecay = 5e-4;
constexpr std::int64_t kMlpInputs = 784;
constexpr std::int64_t kMlpWidth = 128;

// As small as what people begin with: what a step costs beside its arithmetic shows here.
class Mlp : public torch::nn::Module {
 public:
  explicit Mlp(std::int64_t classes)
      : first_(register_module("0", torch::nn::Linear(kMlpInputs, kMlpWidth))),
        second_(register_module("2", torch::nn::Linear(kMlpWidth, kMlpWidth))),
        third_(register_module("4", torch::nn::Linear(kMlpWidth, classes))) {}
  at::Tensor forward(const at::Tensor& x) { return third_(second_(first_(x).relu_()).relu_()); }

 private:
  torch::nn::Linear first_, second_, third_;
};

struct Start {
  PictureModel model;
  Inputs inputs;
};

Start start_of(const JobOptions& options) {
  torch::manual_seed(1);
  Start start;
  if (options.model == "mlp") {
    start.model.num_classes = 10;
    const auto mlp = std::make_shared<Mlp>(start.model.num_classes);
    start.model.module = mlp;
    start.model.forward = [inner = mlp.get()](const at::Tensor& x) { return inner->forward(x); };
    start.inputs.pictures = at::randn({options.batch, kMlpInputs});
  } else {
    start.model = make_picture_model(
        {.name = options.model, .variant = parse_variant(options.variant), .num_classes = 10, .dropout = 0});
    start.inputs.pictures = at::randn({options.batch, 3, options.pixels, options.pixels});
  }
  start.inputs.labels = at::randint(start.model.num_classes, {options.batch}, at::kLong);
  return start;
}

void append(std::ofstream& file, const at::Tensor& tensor) {
  file.write(static_cast<const char*>(tensor.const_data_ptr()),
             static_cast<std::streamsize>(tensor.nbytes()));
}

}  // namespace

void write_job(const JobOptions& options, const std::filesystem::path& folder) {
  const Start start = start_of(options);
  const std::string values = (folder / "values").string();
  nlohmann::json job = {{"model", options.model},
                        {"variant", options.variant},
                        {"classes", start.model.num_classes},
                        {"dropout", 0.0},
                        {"device", options.device.str()},
                        {"threads", at::get_num_threads()},
                        {"rate", kRate},
                        {"momentum", kMomentum},
                        {"weight_decay", kWeightDecay},
                        {"values", values},
                        {"pictures", start.inputs.pictures.sizes()},
                        {"parameters", nlohmann::json::array()}};
  std::ofstream file(values, std::ios::binary | std::ios::trunc);
  for (const auto& item : start.model.module->named_parameters()) {
    job["parameters"].push_back({item.key(), item.value().sizes()});
    append(file, item.value());
  }
  append(file, start.inputs.pictures);
  append(file, start.inputs.labels);
  file.close();
  std::ofstream words(folder / "job.json", std::ios::trunc);
  words << job.dump();
  words.close();
  if (!file || !words) throw Error("cannot write to " + folder.string(), ExitCode::io_failed);
}

std::unique_ptr<Training> our_training(const JobOptions& options, bool amp) {
  Start start = start_of(options);
  start.inputs.pictures = start.inputs.pictures.to(options.device);
  start.inputs.labels = start.inputs.labels.to(options.device);
  const Precision precision = !amp                      ? Precision::fp32
                              : options.device.is_cpu() ? Precision::bf16
                                                        : Precision::fp16;
  return std::make_unique<Training>(
      std::move(start.model), precision, amp ? "nhwc" : "nchw", std::move(start.inputs),
      torch::optim::SGDOptions(kRate).momentum(kMomentum).weight_decay(kWeightDecay));
}

}  // namespace holdfast::bench
