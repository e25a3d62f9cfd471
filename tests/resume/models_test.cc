// Every model trains resumably: killed after a checkpoint in the middle, and made anew with other numbers, it
// ends with the same parameters, buffers, slots and random numbers, bit for bit.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/utils.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <thread>

#include "examples/models/alexnet.h"
#include "examples/models/bert.h"
#include "examples/models/picture_model.h"
#include "examples/models/resnet.h"
#include "examples/models/ssd_task.h"
#include "examples/models/vgg.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/data/synthetic_text.h"
#include "holdfast/optim/clip.h"
#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/lamb.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/optim/schedule.h"
#include "holdfast/state/train_state.h"
#include "support/nightly.h"
#include "support/ssd_boxes.h"
#include "support/subprocess.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

struct Subject {
  std::shared_ptr<torch::nn::Module> module;
  // Of a batch that is the same for the same generator, without the default one's help.
  std::function<at::Tensor(at::Generator& batch)> loss;
  bool lamb = false;  // as the published table trains BERT; else SGD
};

struct Model {
  const char* name;
  std::function<Subject()> make;
  bool nightly = false;  // too slow for every day, or a variant of one that every day has
};

void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kClasses = 10;

at::Tensor pictures(at::Generator& batch, std::int64_t pixels) {
  return at::randn({kBatch, 3, pixels, pixels}, batch);
}
at::Tensor labels(at::Generator& batch) {
  return at::randint(0, kClasses, {kBatch}, batch, at::TensorOptions().dtype(at::kLong));
}

// By name, at the smallest size.
Subject whole(PictureModelOptions options) {
  options.num_classes = kClasses;
  const PictureModel model = make_picture_model(options);
  return {model.module, [model](at::Generator& batch) {
            const at::Tensor shown = pictures(batch, model.smallest_pixels);
            return model.loss(shown, labels(batch));
          }};
}

// A smaller form, made by its own options.
template <typename Net>
Subject small(const Net& net, std::int64_t pixels) {
  return {net.ptr(), [inner = net.ptr(), pixels](at::Generator& batch) {
            const at::Tensor shown = pictures(batch, pixels);
            return at::cross_entropy_loss(inner->forward(shown), labels(batch));
          }};
}

// With dropout, which draws from the default generator.
Subject language(const BertOptions& options) {
  Bert net(options);
  const SyntheticTextOptions text{
      .tokens = 32, .predictions = 5, .vocabulary = options.vocabulary, .mask_id = 3};
  return {net.ptr(),
          [net, text](at::Generator& batch) mutable {
            return net->loss(BertBatch::of(synthetic_text(text, kBatch, batch.current_seed(), 0))).total;
          },
          true};
}

Subject small_language(BertAttention attention) {
  return language({.vocabulary = 97,
                   .hidden = 32,
                   .layers = 2,
                   .heads = 4,
                   .inner = 64,
                   .positions = 32,
                   .attention = attention});
}

// One picture; what the table's step makes up comes from the default generator.
Subject detector(const Ssd300Options& options, SsdMode mode) {
  const auto net = make_ssd300(options);
  return {net, [task = std::make_shared<SsdTask>(net, mode)](at::Generator& batch) {
            SsdBatch shown{.pictures = at::randn({1, 3, kSsdPixels, kSsdPixels}, batch)};
            if (task->mode() == SsdMode::matched) shown.boxes = make_ssd_boxes({{{.1, .2, .5, .9, 3}}});
            return task->loss(shown).total;
          }};
}

const Model kModels[] = {
    {"ResNet50", [] { return whole({.name = "resnet50"}); }},
    {"ResNet152Narrow",
     [] { return small(ResNet(ResNetOptions{.depth = 152, .num_classes = kClasses, .width = 8}), 32); }},
    {"Vgg16FewHidden", [] { return small(Vgg16(Vgg16Options{.num_classes = kClasses, .hidden = 64}), 32); }},
    {"AlexNetFewHidden",
     [] { return small(AlexNet(AlexNetOptions{.num_classes = kClasses, .hidden = 64}), 63); }},
    {"ResNet50TableNarrow",
     [] {
       return small(ResNet(ResNetOptions{
                        .depth = 50, .num_classes = kClasses, .width = 8, .variant = ModelVariant::table}),
                    32);
     }},
    {"Vgg16TableFewHidden",
     [] {
       return small(
           Vgg16(Vgg16Options{.num_classes = kClasses, .variant = ModelVariant::table, .hidden = 64}), 32);
     },
     /*nightly=*/true},
    {"AlexNetTableFewHidden",
     [] {
       return small(
           AlexNet(AlexNetOptions{.num_classes = kClasses, .variant = ModelVariant::table, .hidden = 64}),
           67);
     }},
    {"InceptionV3", [] { return whole({.name = "inception_v3"}); }},
    {"InceptionV3Table", [] { return whole({.name = "inception_v3", .variant = ModelVariant::table}); },
     /*nightly=*/true},
    {"InceptionV3Auxiliary", [] { return whole({.name = "inception_v3", .auxiliary = true}); },
     /*nightly=*/true},
    {"InceptionV4", [] { return whole({.name = "inception_v4", .variant = ModelVariant::table}); },
     /*nightly=*/true},
    {"Bert", [] { return small_language(BertAttention::fused); }},
    {"BertPlain", [] { return small_language(BertAttention::plain); }},
    {"Ssd300Table", [] { return detector({.variant = ModelVariant::table}, SsdMode::table); },
     /*nightly=*/true},
    {"Ssd300", [] { return detector({}, SsdMode::matched); }, /*nightly=*/true},
    {"Ssd300Vgg16", [] { return detector({.backbone = SsdBackbone::vgg16}, SsdMode::matched); },
     /*nightly=*/true},
    {"ResNet152", [] { return whole({.name = "resnet152"}); }, /*nightly=*/true},
    {"Vgg16", [] { return whole({.name = "vgg16"}); }, /*nightly=*/true},
    {"AlexNet", [] { return whole({.name = "alexnet"}); }, /*nightly=*/true},
    {"ResNet50Table", [] { return whole({.name = "resnet50", .variant = ModelVariant::table}); },
     /*nightly=*/true},
    {"ResNet152Table", [] { return whole({.name = "resnet152", .variant = ModelVariant::table}); },
     /*nightly=*/true},
    {"Vgg16Table", [] { return whole({.name = "vgg16", .variant = ModelVariant::table}); }, /*nightly=*/true},
    {"BertLarge", [] { return language(bert_large()); }, /*nightly=*/true},
    {"AlexNetTable", [] { return whole({.name = "alexnet", .variant = ModelVariant::table}); },
     /*nightly=*/true},
};

constexpr std::int64_t kSaved = 2;
constexpr std::int64_t kLast = 3;
constexpr double kRate = 1e-3;

// LAMB as lamb.h has the reference: decay but of biases and norms, which takes the trust ratio with it, and
// the common norm of all gradients clipped, here to so little that every step is.
constexpr double kMostNorm = 0.1;
std::unique_ptr<torch::optim::Optimizer> optimizer_of(const Subject& subject) {
  if (!subject.lamb) return make_optimizer("sgd", *subject.module, {.lr = kRate});
  const LambOptions options = LambOptions(kRate).weight_decay(0.01).max_grad_norm(kMostNorm);
  return std::make_unique<Lamb>(decay_groups(*subject.module, options), options);
}

// BERT's, so short that the rate rises, falls and falls in the steps that are made.
RatePlan plan_of(const Subject& subject) {
  return subject.lamb ? RatePlan::polynomial(7, 0.2843) : RatePlan::constant();
}

// One process's life, as far as the training is concerned.
class Life {
 public:
  Life(const Model& model, const std::filesystem::path& directory, std::uint64_t seed)
      : subject_(seeded(model, seed)),
        optimizer_(optimizer_of(subject_)),
        schedule_(*optimizer_, plan_of(subject_)) {
    state_.add("model", *subject_.module);
    state_.add("optimizer", *optimizer_);
    state_.add("schedule", schedule_);
    checkpointer_ = std::make_unique<Checkpointer>(
        state_, CheckpointerOptions{.directory = directory,
                                    .every = {SaveEvery::steps(kSaved)},
                                    .notices = {.hear_signals = false, .cloud = false}});
    resumed = checkpointer_->resume();
  }

  void train_to(std::int64_t last) {
    while (state_.step() < last) {
      at::Generator batch =
          at::make_generator<at::CPUGeneratorImpl>(1000 + static_cast<std::uint64_t>(state_.step()));
      optimizer_->zero_grad();
      const at::Tensor loss = subject_.loss(batch);
      loss.backward();
      EXPECT_TRUE(std::isfinite(loss.item<double>())) << "at step " << state_.step();
      checkpointer_->before_update();
      if (subject_.lamb) expect_the_references_step();
      optimizer_->step();
      schedule_.step();
      EXPECT_FALSE(checkpointer_->after_step({.loss = loss.item<double>()}).failure);
    }
  }

  void wait_until_durable(std::int64_t step) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);  // 4 GB at the most
    while (checkpointer_->last_durable().step < step && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_GE(checkpointer_->last_durable().step, step);
  }

  // By name; and all that is not a tensor.
  std::map<std::string, std::string> digests() {
    const auto snapshot = stage(state_);
    std::map<std::string, std::string> all = {{"state", digest(*snapshot)}};
    for (std::size_t i = 0; i < snapshot->layout->tensors().size(); ++i) {
      all[snapshot->layout->tensors()[i].name] = to_hex(tensor_digest(snapshot->bytes(i)));
    }
    return all;
  }

  // Of the module, whatever the state knows of it: training itself does not read running statistics.
  std::map<std::string, std::string> buffers() const {
    std::map<std::string, std::string> all;
    for (const auto& item : subject_.module->named_buffers()) {
      const at::Tensor value = item.value().contiguous();
      all[item.key()] = std::string(static_cast<const char*>(value.const_data_ptr()), value.nbytes());
    }
    return all;
  }

  Resumed resumed;

 private:
  // Nothing of what LAMB can do is idle.
  void expect_the_references_step() {
    EXPECT_GT(grad_norm(gradients_of(*optimizer_)).item<double>(), kMostNorm);
    const auto& groups = optimizer_->param_groups();
    ASSERT_EQ(groups.size(), 2u);
    EXPECT_EQ(static_cast<const LambOptions&>(groups[0].options()).weight_decay(), 0.01);
    EXPECT_EQ(static_cast<const LambOptions&>(groups[1].options()).weight_decay(), 0);
    constexpr double kFactors[] = {0.502487, 0.845154, 0.755929};  // 1/7 / 0.2843, sqrt(5/7), sqrt(4/7)
    EXPECT_NEAR(schedule_.learning_rate() / kRate, kFactors[state_.step()], 1e-6);
    EXPECT_EQ(groups[1].options().get_lr(), schedule_.learning_rate());
  }

  static Subject seeded(const Model& model, std::uint64_t seed) {
    torch::manual_seed(seed);
    return model.make();
  }

  Subject subject_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  Schedule schedule_;
  TrainState state_;
  std::unique_ptr<Checkpointer> checkpointer_;
};

class Models : public testing::TestWithParam<Model> {
 protected:
  Models() { at::set_num_threads(1); }  // two wait for each other where a machine is busy
};

TEST_P(Models, GoOnBitForBit) {
  const Model& model = GetParam();
  if (model.nightly && !nightly()) GTEST_SKIP() << "HOLDFAST_NIGHTLY=1 trains it too";
  const TemporaryFolder folder;
  const std::filesystem::path directory = folder.path() / "run";
  std::map<std::string, std::string> at_the_checkpoint;
  std::map<std::string, std::string> straight;
  std::map<std::string, std::string> buffers;
  {
    Life first(model, directory, 1);
    EXPECT_TRUE(first.resumed.fresh);
    first.train_to(kSaved);
    at_the_checkpoint = first.digests();
    first.train_to(kLast);
    straight = first.digests();
    buffers = first.buffers();
    first.wait_until_durable(kSaved);
  }  // without finish(): of the last step nothing is left
  Life second(model, directory, 2);
  ASSERT_FALSE(second.resumed.fresh);
  ASSERT_EQ(second.resumed.step, kSaved);
  EXPECT_EQ(second.digests(), at_the_checkpoint);
  second.train_to(kLast);
  EXPECT_EQ(second.digests(), straight);
  EXPECT_TRUE(second.buffers() == buffers);

  std::size_t moved = 0;
  std::size_t slots = 0;
  for (const auto& [name, bits] : straight) {
    slots += name.starts_with("optimizer/") ? 1 : 0;
    moved += bits != at_the_checkpoint[name] ? 1 : 0;
  }
  EXPECT_GT(slots, 0u);
  EXPECT_GT(moved, slots);  // parameters, too
}

INSTANTIATE_TEST_SUITE_P(Each, Models, testing::ValuesIn(kModels),
                         [](const auto& info) { return std::string(info.param.name); });

}}  // namespace holdfast::test
