// Weights that Python exported, by name. tests/unit/models/exported/ has what torchvision, timm and Hugging
// Face's transformers export: the keys of every model with their types and shapes, and a small BERT in full.
// By night Python exports every model in full and says the losses.
//
// That Python is .deps/peers/bin/python, from bench/peers/install, or $HOLDFAST_PEERS_PYTHON.
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "examples/models/ssd_task.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/state/train_state.h"
#include "support/nightly.h"
#include "support/ssd_boxes.h"
#include "support/subprocess.h"
#include "unit/models/inceptions.h"
#include "unit/models/tiny_bert.h"

namespace holdfast::test { namespace {

const std::filesystem::path kExported =
    std::filesystem::path(HOLDFAST_SOURCE_DIR) / "tests/unit/models/exported";

struct ExportedModel {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor()> loss;  // of the oracle's batch, in float64
};

struct Exported {
  const char* name;  // as export.py calls it
  std::function<ExportedModel()> make;
};

void PrintTo(const Exported& exported, std::ostream* out) { *out << exported.name; }

ExportedModel exported_pictures(const char* name, std::int64_t pixels, bool auxiliary = false) {
  const PictureModel model = undrawn(name, ModelVariant::torchvision, auxiliary);
  return {model.module, [model, pixels] {
            return model.loss(oracle_pictures(2, pixels), at::tensor({std::int64_t{11}, std::int64_t{48}}));
          }};
}

ExportedModel exported_detector(SsdBackbone backbone) {
  const auto net = make_ssd300({.backbone = backbone, .initialize = false});
  return {net, [task = std::make_shared<SsdTask>(net, SsdMode::matched)] {
            const SsdBoxes boxes =
                make_ssd_boxes({{{.1, .15, .45, .6, 1}, {.5, .3, .95, .9, 17}, {.02, .7, .2, .98, 44}},
                                {{.2, .2, .8, .85, 80}, {.6, .05, .72, .18, 3}, {.3, .55, .42, .95, 25}}},
                               at::kDouble);
            return task->loss({.pictures = oracle_pictures(2, kSsdPixels), .boxes = boxes}).total;
          }};
}

ExportedModel exported_language(BertOptions options, std::int64_t tokens, std::int64_t predictions) {
  options = without_dropout(options);
  options.initialize = false;
  Bert net(options);
  return {net.ptr(), [net, options, tokens, predictions]() mutable {
            return net->loss(oracle_batch(2, tokens, predictions, options.vocabulary)).total;
          }};
}

const Exported kAll[] = {
    {"resnet50", [] { return exported_pictures("resnet50", 64); }},
    {"resnet152", [] { return exported_pictures("resnet152", 64); }},
    {"vgg16", [] { return exported_pictures("vgg16", 64); }},
    {"alexnet", [] { return exported_pictures("alexnet", 224); }},
    {"inception_v3", [] { return exported_pictures("inception_v3", 139); }},
    {"inception_v3_auxiliary", [] { return exported_pictures("inception_v3", 299, true); }},
    {"inception_v4", [] { return exported_pictures("inception_v4", 139); }},
    {"ssd300_resnet34", [] { return exported_detector(SsdBackbone::resnet34); }},
    {"ssd300_vgg16", [] { return exported_detector(SsdBackbone::vgg16); }},
    {"bert_large", [] { return exported_language(bert_large(ModelVariant::torchvision), 32, 5); }},
};

// "conv1.weight float32 64x3x7x7"
std::string export_line(const std::string& key, const at::Tensor& value) {
  std::ostringstream line;
  line << key << (value.scalar_type() == at::kLong ? " int64 " : " float32 ");
  for (const std::int64_t size : value.sizes()) line << (line.str().ends_with(' ') ? "" : "x") << size;
  return line.str() + (value.dim() == 0 ? "-" : "");
}

// In the order of Python's state_dict(): module by module, its parameters before its buffers.
std::vector<std::string> export_lines(const torch::nn::Module& net) {
  std::vector<std::string> lines;
  for (const auto& part : net.named_modules(/*name_prefix=*/"", /*include_self=*/true)) {
    const std::string prefix = part.key().empty() ? "" : part.key() + ".";
    const auto add = [&](const auto& items) {
      for (const auto& item : items) lines.push_back(export_line(prefix + item.key(), item.value()));
    };
    add(part.value()->named_parameters(/*recurse=*/false));
    add(part.value()->named_buffers(/*recurse=*/false));
  }
  return lines;
}

using Exports = OnOneThread<testing::TestWithParam<Exported>>;

TEST_P(Exports, HaveTheKeysTypesAndShapesOfPythons) {
  std::vector<std::string> theirs = lines_of(read_text(kExported / (std::string(GetParam().name) + ".keys")));
  ASSERT_FALSE(theirs.empty());
  ASSERT_TRUE(theirs[0].starts_with("# ")) << theirs[0];
  theirs.erase(theirs.begin());
  const ExportedModel model = GetParam().make();
  // What is tied is registered once: the other keys are known beside it.
  if (const auto* const others = dynamic_cast<const OtherKeys*>(model.module.get())) {
    const auto parameters = model.module->named_parameters();
    for (const TiedKey& tied : others->tied_keys()) {
      const auto found =
          std::find(theirs.begin(), theirs.end(), export_line(tied.key, parameters[tied.stored]));
      ASSERT_NE(found, theirs.end()) << tied.key;
      theirs.erase(found);
    }
  }
  const std::vector<std::string> ours = export_lines(*model.module);
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_EQ(ours[i], theirs[i]);
}

// As a run with --init-from takes them, over numbers that are none.
void take_exported(const ExportedModel& model, const std::filesystem::path& file) {
  {
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.module->parameters()) {
      parameter.fill_(std::numeric_limits<double>::quiet_NaN());
    }
  }
  const TemporaryFolder folder;
  TrainState state;
  state.add("model", *model.module);
  Checkpointer checkpointer(state, {.directory = folder.path() / "run",
                                    .mount = "/",
                                    .start = {.init_from = file},
                                    .notices = {.hear_signals = false, .cloud = false}});
  EXPECT_TRUE(checkpointer.resume().fresh);
}

constexpr double kOfTheLoss = 1e-6;

TEST_F(TinyBert, TakesWhatHuggingFaceSaves) {
  const ExportedModel model = exported_language({.vocabulary = 97,
                                                 .hidden = 16,
                                                 .layers = 2,
                                                 .heads = 4,
                                                 .inner = 32,
                                                 .positions = 32,
                                                 .gelu = BertGelu::erf},
                                                16, 3);
  take_exported(model, kExported / "bert_tiny.safetensors");
  model.module->to(at::kDouble);
  expect_close(model.loss().item<double>(), 5.442696024960788, "loss", kOfTheLoss);  // as export.py said
}

TEST_P(Exports, LoadByNameAndComputeWhatPythonDoes) {
  if (!nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 has Python export the whole model";
  const char* const given = std::getenv("HOLDFAST_PEERS_PYTHON");
  const std::string python =
      given != nullptr ? given : std::string(HOLDFAST_SOURCE_DIR) + "/.deps/peers/bin/python";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << "there is no " << python << ": bench/peers/install";
  const TemporaryFolder folder;
  const std::string file = folder.path() / "weights.safetensors";
  const Ended ended =
      Subprocess({python, (kExported / "export.py").string(), "weights", GetParam().name, file})
          .wait(std::chrono::minutes(30));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto theirs = nlohmann::json::parse(ended.last_line());
  RecordProperty("source", theirs["source"].get<std::string>());

  const ExportedModel model = GetParam().make();
  take_exported(model, file);
  std::int64_t index = 0;  // of no batch norm do they all stand at the same
  for (const auto& item : model.module->named_buffers()) {
    if (item.key().ends_with("num_batches_tracked")) {
      EXPECT_EQ(item.value().item<std::int64_t>(), index) << item.key();
    }
    ++index;
  }
  model.module->to(at::kDouble);
  const at::NoGradGuard no_grad;
  for (const char* mode : {"eval", "train"}) {  // which moves statistics: last
    model.module->train(std::string(mode) == "train");
    expect_close(model.loss().item<double>(), theirs["losses"][mode].get<double>(), mode, kOfTheLoss);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, Exports, testing::ValuesIn(kAll),
                         [](const auto& info) { return std::string(info.param.name); });

}}  // namespace holdfast::test
