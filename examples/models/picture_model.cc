#include "examples/models/picture_model.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

#include "examples/models/alexnet.h"
#include "examples/models/inception_v3.h"
#include "examples/models/inception_v4.h"
#include "examples/models/resnet.h"
#include "examples/models/vgg.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// ImageNet's classes and one for "none of them", as the table's programs have.
constexpr std::int64_t kTableClasses = 1001;

template <typename Net>
void hold(PictureModel& model, const Net& net) {
  model.module = net.ptr();
  // Plain pointers: model.module owns the net, and a PictureModel moves its functions together with it.
  model.forward = [inner = net.ptr().get()](const at::Tensor& pictures) { return inner->forward(pictures); };
  model.outputs = [inner = net.ptr().get()](const at::Tensor& pictures) {
    return std::vector{inner->forward(pictures)};
  };
}

constexpr double kDropout = 0.5;  // of VGG-16 and AlexNet

// Thread-local, because RecordFunction's callbacks are plain functions without arguments of ours.
thread_local std::vector<double>* macs_of_layers = nullptr;

double product(at::IntArrayRef sizes) {
  double all = 1;
  for (const std::int64_t size : sizes) all *= static_cast<double>(size);
  return all;
}

// RecordFunction shows inputs when a layer begins and outputs when it ends.
struct LayerCall final : at::ObserverContext {
  explicit LayerCall(double macs) : macs_of_one_output(macs) {}
  double macs_of_one_output;
};

// Batched products, as in BERT's attention, are not counted here: bert.h has a closed form.
std::unique_ptr<at::ObserverContext> begin_layer(const at::RecordFunction& called) {
  const std::string_view name = called.name();
  const auto inputs = called.inputs();
  if (name == "aten::convolution") {
    // Weights are [out, in / groups, height, width]: one output takes a product for each number of one row.
    return std::make_unique<LayerCall>(product(inputs[1].toTensor().sizes().slice(1)));
  }
  if (name == "aten::addmm") {  // a linear layer: bias, inputs, transposed weight
    return std::make_unique<LayerCall>(static_cast<double>(inputs[2].toTensor().size(0)));
  }
  return nullptr;
}

// For one picture: leaves out the batch dimension.
void end_layer(const at::RecordFunction& called, at::ObserverContext* begun) {
  if (begun == nullptr) return;
  const double outputs = product(called.outputs()[0].toTensor().sizes().slice(1));
  macs_of_layers->push_back(outputs * static_cast<LayerCall*>(begun)->macs_of_one_output);
}

class CountLayers {
 public:
  explicit CountLayers(std::vector<double>& to) {
    macs_of_layers = &to;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin_layer, &end_layer)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~CountLayers() {
    at::removeCallback(handle_);
    macs_of_layers = nullptr;
  }
  CountLayers(const CountLayers&) = delete;
  CountLayers& operator=(const CountLayers&) = delete;

 private:
  at::CallbackHandle handle_{};
};

}  // namespace

std::string_view word_of(ModelVariant variant) {
  return variant == ModelVariant::table ? "table" : "torchvision";
}

ModelVariant parse_variant(std::string_view word) {
  for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
    if (word == word_of(variant)) return variant;
  }
  throw UsageError("there is no variant '" + std::string(word) + "': choose torchvision or table");
}

const std::vector<std::string>& picture_model_names() {
  static const std::vector<std::string> names = {"resnet50", "resnet152",    "vgg16",
                                                 "alexnet",  "inception_v3", "inception_v4"};
  return names;
}

PictureModel make_picture_model(const PictureModelOptions& options) {
  const bool table = options.variant == ModelVariant::table;
  PictureModel model{.name = options.name,
                     .variant = options.variant,
                     .num_classes = options.num_classes != 0 ? options.num_classes
                                    : table                  ? kTableClasses
                                                             : 1000,
                     .pixels = 224,
                     .smallest_pixels = 32,
                     .module = nullptr,
                     .forward = nullptr,
                     .outputs = nullptr};
  if (options.auxiliary && options.name != "inception_v3") {
    throw UsageError("'" + options.name + "' has no auxiliary head; inception_v3 has one");
  }
  if (options.name == "resnet50" || options.name == "resnet152") {
    hold(model, ResNet(ResNetOptions{.depth = options.name == "resnet50" ? 50 : 152,
                                     .num_classes = model.num_classes,
                                     .variant = options.variant,
                                     .batch_norm = options.batch_norm,
                                     .initialize = options.initialize}));
  } else if (options.name == "vgg16") {
    hold(model, Vgg16(Vgg16Options{.num_classes = model.num_classes,
                                   .variant = options.variant,
                                   .dropout = options.dropout.value_or(kDropout),
                                   .initialize = options.initialize}));
  } else if (options.name == "alexnet") {
    // The smallest side is the one whose third pool still has a cell.
    model.pixels = table ? 227 : 224;
    model.smallest_pixels = table ? 67 : 63;
    hold(model, AlexNet(AlexNetOptions{.num_classes = model.num_classes,
                                       .variant = options.variant,
                                       .dropout = options.dropout.value_or(kDropout),
                                       .initialize = options.initialize}));
  } else if (options.name == "inception_v3") {
    const InceptionV3 net(InceptionV3Options{.num_classes = model.num_classes,
                                             .variant = options.variant,
                                             .auxiliary = options.auxiliary,
                                             .dropout = options.dropout,
                                             .batch_norm = options.batch_norm,
                                             .initialize = options.initialize});
    hold(model, net);
    model.pixels = InceptionV3Impl::kPixels;
    model.smallest_pixels = InceptionV3Impl::kSmallestPixels;
    if (options.auxiliary) {
      model.smallest_pixels = InceptionV3Impl::kSmallestPixelsOfBoth;
      model.outputs = [inner = net.ptr().get()](const at::Tensor& pictures) {
        const InceptionV3Impl::Outputs both = inner->forward_both(pictures);
        return std::vector{both.logits, both.auxiliary};
      };
    }
  } else if (options.name == "inception_v4") {
    model.pixels = InceptionV4Impl::kPixels;
    model.smallest_pixels = InceptionV4Impl::kSmallestPixels;
    hold(model, InceptionV4(InceptionV4Options{.num_classes = model.num_classes,
                                               .variant = options.variant,
                                               .dropout = options.dropout,
                                               .batch_norm = options.batch_norm,
                                               .initialize = options.initialize}));
  } else {
    std::string names;
    for (const std::string& name : picture_model_names()) names += (names.empty() ? "" : ", ") + name;
    throw UsageError("there is no model '" + options.name + "': choose from " + names);
  }
  return model;
}

at::Tensor PictureModel::loss(const at::Tensor& pictures, const at::Tensor& labels) const {
  // The auxiliary head only helps to train; its loss is no measure of the model.
  if (!module->is_training()) return at::cross_entropy_loss(forward(pictures), labels);
  const std::vector<at::Tensor> all = outputs(pictures);
  const at::Tensor main = at::cross_entropy_loss(all[0], labels);
  return all.size() == 1 ? main : main + kAuxiliaryWeight * at::cross_entropy_loss(all[1], labels);
}

ModelWork count_work(const PictureModel& model, std::int64_t pixels) {
  const at::NoGradGuard no_grad;
  const bool training = model.module->is_training();
  const at::TensorOptions like_weights = model.module->parameters().front().options();
  std::vector<double> layers;
  model.module->eval();  // an empty batch has no statistics
  {
    const CountLayers counting(layers);
    // An empty batch: shapes flow through all layers, and nothing is computed.
    model.outputs(at::empty({0, 3, pixels, pixels}, like_weights));
  }
  // As it was: counting must not change how the model computes.
  model.module->train(training);
  ModelWork work;
  for (const double macs : layers) work.forward_macs += macs;
  // Backward costs twice the forward pass, but the first layer needs no gradient of its input.
  work.train_flops = 2 * (3 * work.forward_macs - layers.front());
  return work;
}

}}  // namespace holdfast::v0_2
