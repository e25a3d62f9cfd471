#include "examples/models/ssd300.h"

#include <sstream>
#include <string>
#include <vector>

#include "examples/models/ssd300_kinds.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

std::string_view word_of(SsdBackbone backbone) {
  return backbone == SsdBackbone::vgg16 ? "vgg16" : "resnet34";
}

std::shared_ptr<Ssd300> make_ssd300(const Ssd300Options& options) {
  const bool vgg = options.backbone == SsdBackbone::vgg16;
  Ssd300Options filled = options;
  // COCO has 80 classes with ids up to 90. torchvision keeps the ids, MLPerf numbers the classes anew; both
  // add the background.
  if (filled.num_classes == 0) filled.num_classes = vgg ? 91 : 81;
  if (filled.num_classes < 2) {
    throw UsageError("an SSD300 needs the background and at least one class more, num_classes 2, not " +
                     std::to_string(filled.num_classes));
  }
  if (vgg && options.variant == ModelVariant::table) {
    throw UsageError("the table's SSD300 has the backbone resnet34: there is no variant 'table' of vgg16");
  }
  if (vgg && options.batch_norm != BatchNormKind::aten) {
    throw UsageError("an SSD300 with the backbone vgg16 has no batch norms: leave them at aten, not " +
                     std::string(word_of(options.batch_norm)));
  }
  auto net = vgg ? models::make_ssd300_vgg16(filled) : models::make_ssd300_resnet34(filled);
  if (options.initialize) net->initialize();
  return net;
}

void Ssd300::require(const at::Tensor& pictures) const {
  const bool fits = pictures.dim() == 4 && pictures.size(1) == 3 && pictures.size(2) == kSsdPixels &&
                    pictures.size(3) == kSsdPixels;
  if (fits) return;
  std::ostringstream what;
  what << "SSD300 takes pictures of [N, 3, 300, 300], for its anchors are made for them, not "
       << pictures.sizes();
  throw UsageError(what.str());
}

ModelWork count_work(Ssd300& net) {
  PictureModel model;
  model.name = "ssd300";
  // An aliasing pointer that does not own the net.
  model.module = std::shared_ptr<torch::nn::Module>(std::shared_ptr<torch::nn::Module>(), &net);
  model.outputs = [&net](const at::Tensor& pictures) {
    const SsdOutput output = net.forward(pictures);
    return std::vector<at::Tensor>{output.boxes, output.scores};
  };
  return count_work(model, kSsdPixels);
}

}}  // namespace holdfast::v0_2
