#include "workload.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <optional>
#include <utility>

#include "examples/models/bert.h"
#include "examples/models/picture_model.h"
#include "examples/models/ssd300.h"
#include "examples/models/ssd_task.h"
#include "holdfast/base/error.h"
#include "holdfast/data/synthetic_text.h"

namespace holdfast::bench {
namespace {

// As picture_model.h calls them.
std::string picture_name(const std::string& model) {
  if (model.starts_with("inception3")) return "inception_v3";
  if (model == "inception4") return "inception_v4";
  return model;
}

Workload pictures_of(const WorkloadOptions& options) {
  const PictureModel model =
      make_picture_model({.name = picture_name(options.model),
                          .variant = parse_variant(options.variant),
                          .dropout = options.dropout ? std::nullopt : std::optional(0.0),
                          .batch_norm = parse_batch_norm(options.bn),
                          .auxiliary = options.model == "inception3-aux"});
  const std::int64_t pixels = options.pixels != 0 ? options.pixels : model.pixels;
  if (pixels < model.smallest_pixels) {
    throw UsageError("it needs pictures of at least " + std::to_string(model.smallest_pixels) + " pixels");
  }
  Workload work{.module = model.module, .draw = nullptr, .loss = nullptr};
  work.draw = [pixels, classes = model.num_classes, device = options.device](std::int64_t batch) -> Inputs {
    const auto on_device = at::TensorOptions(device);
    const at::Tensor pictures = at::randn({batch, 3, pixels, pixels}, on_device);
    return {{"pictures", pictures}, {"labels", at::randint(classes, {batch}, on_device.dtype(at::kLong))}};
  };
  work.loss = [model](const Inputs& inputs) { return model.loss(inputs[0].value, inputs[1].value); };
  work.size = pixels;
  work.train_flops = count_work(model, pixels).train_flops;
  if (!model.module->buffers().empty()) work.bn = options.bn;
  return work;
}

Workload detector_of(const WorkloadOptions& options) {
  const bool vgg = options.model == "ssd300-vgg";
  const SsdMode mode = options.model == "ssd300" ? SsdMode::table : SsdMode::matched;
  const auto net = make_ssd300({.backbone = vgg ? SsdBackbone::vgg16 : SsdBackbone::resnet34,
                                .variant = parse_variant(options.variant),
                                .batch_norm = vgg ? BatchNormKind::aten : parse_batch_norm(options.bn)});
  const auto task = std::make_shared<SsdTask>(net, mode);
  Workload work{.module = net, .draw = nullptr, .loss = nullptr};
  work.draw = [task, fixed = options.fixed, device = options.device](std::int64_t batch) -> Inputs {
    const at::TensorOptions on_device(device);
    const SsdBatch drawn = task->synthetic_batch(batch, on_device);
    Inputs inputs = {{"pictures", drawn.pictures}};
    if (drawn.boxes) {
      inputs.push_back({"corners", drawn.boxes->corners});
      inputs.push_back({"classes", drawn.boxes->classes});
    } else if (fixed) {
      const SsdTableTargets targets = draw_ssd_table_targets(batch, on_device);
      inputs.push_back({"boxes", targets.boxes});
      inputs.push_back({"classes", targets.classes});
      inputs.push_back({"counts", targets.counts});
      inputs.push_back({"jitter", draw_color_jitter(on_device)});
    }
    return inputs;
  };
  work.loss = [task](const Inputs& inputs) {
    SsdBatch batch{.pictures = inputs[0].value, .boxes = {}, .targets = {}, .jitter = {}};
    if (task->mode() == SsdMode::matched) {
      batch.boxes = SsdBoxes{inputs[1].value, inputs[2].value};
    } else if (inputs.size() > 1) {
      batch.targets = SsdTableTargets{inputs[1].value, inputs[2].value, inputs[3].value};
      batch.jitter = inputs[4].value;
    }
    return task->loss(batch).total;
  };
  work.size = kSsdPixels;
  work.train_flops = count_work(*net).train_flops;
  if (!vgg) work.bn = options.bn;
  return work;
}

Workload language_of(const WorkloadOptions& options) {
  const bool long_ones = options.model == "bert-512";
  SyntheticTextOptions text{
      .tokens = long_ones ? 512 : 128, .predictions = long_ones ? 80 : 20, .device = options.device};
  BertOptions bert = bert_large(parse_variant(options.variant));
  if (options.tiny) {
    bert.vocabulary = text.vocabulary = 1000;
    bert.hidden = 64;
    bert.layers = 2;
    bert.heads = 4;
    bert.inner = 128;
  }
  if (!options.dropout) bert.dropout = bert.attention_dropout = 0;
  Bert net(bert);
  Workload work{.module = net.ptr(), .draw = nullptr, .loss = nullptr};
  work.draw = [text](std::int64_t batch) -> Inputs {
    auto made = synthetic_text(text, batch, 1, 0);
    // All are tokens and all predictions count: the harness' masks of ones say nothing more.
    return {{"input_ids", made[0]},
            {"segment_ids", made[1]},
            {"masked_lm_positions", made[3]},
            {"masked_lm_ids", made[4]},
            {"next_sentence_labels", made[6]}};
  };
  work.loss = [net](const Inputs& inputs) mutable {
    return net
        ->loss({.input_ids = inputs[0].value,
                .segment_ids = inputs[1].value,
                .input_mask = {},
                .masked_lm_positions = inputs[2].value,
                .masked_lm_ids = inputs[3].value,
                .masked_lm_weights = {},
                .next_sentence_labels = inputs[4].value})
        .total;
  };
  work.size = text.tokens;
  work.train_flops = count_work(bert, text.tokens, text.predictions).train_flops;
  if (options.tiny) work.note = "a BERT of 2 layers of 64: says nothing about BERT-Large";
  return work;
}

}  // namespace

Workload make_workload(const WorkloadOptions& options) {
  if (options.model.starts_with("bert-")) return language_of(options);
  return options.model.starts_with("ssd300") ? detector_of(options) : pictures_of(options);
}

}  // namespace holdfast::bench
