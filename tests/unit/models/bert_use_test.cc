// What BERT starts from, does with its inputs and says of wrong ones; weights by the names of either world;
// text to train it with.
#include <ATen/ops/allclose.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <torch/utils.h>

#include <cmath>
#include <map>

#include "holdfast/base/error.h"
#include "holdfast/data/synthetic_text.h"
#include "holdfast/state/train_state.h"
#include "unit/models/exported_weights.h"
#include "unit/models/tiny_bert.h"
#include "unit/state/staging.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

TEST_F(TinyBert, StartsAsTheOriginals) {
  torch::manual_seed(1);
  for (const ModelVariant variant : {ModelVariant::torchvision, ModelVariant::table}) {
    const bool table = variant == ModelVariant::table;
    BertOptions options = bert_large(variant);
    EXPECT_EQ(options.gelu == BertGelu::tanh, table);
    options.vocabulary = 2000;
    options.hidden = 256;
    options.inner = 512;
    options.layers = 1;
    const Bert net(options);
    for (const auto& item : net->named_parameters()) {
      const at::Tensor value = item.value().detach();
      if (value.dim() < 2) {
        const double constant = item.key().ends_with("LayerNorm.weight") ? 1 : 0;
        EXPECT_TRUE(value.eq(constant).all().item<bool>()) << item.key();
        continue;
      }
      const double largest = value.abs().max().item<double>();
      if (table) {
        EXPECT_LE(largest, 0.04 * 1.0001) << item.key();
      } else if (value.numel() > 100'000) {
        EXPECT_GT(largest, 0.06) << item.key();
      }
      const double spread = value.std().item<double>() / (table ? 0.02 * 0.87962566 : 0.02);
      EXPECT_NEAR(spread, 1, 6 / std::sqrt(2.0 * static_cast<double>(value.numel()))) << item.key();
    }
    const at::Tensor words = net->named_parameters()["bert.embeddings.word_embeddings.weight"];
    EXPECT_EQ(words[0].eq(0).all().item<bool>(), !table) << "the row of padding";
  }
}

TEST_F(TinyBert, PaddingIsNotLookedAt) {
  for (const BertAttention attention : {BertAttention::fused, BertAttention::plain}) {
    BertOptions options = tiny_bert();
    options.attention = attention;
    Bert net = filled_bert(options);
    BertBatch batch = tiny_batch();
    const BertLogits before = net->forward(batch);
    batch.input_ids[1].slice(0, 13).fill_(5);
    const BertLogits after = net->forward(batch);
    EXPECT_TRUE(before.next_sentence.equal(after.next_sentence));
    EXPECT_TRUE(before.masked_lm.equal(after.masked_lm));
    batch.input_mask = at::Tensor();  // all are tokens
    EXPECT_FALSE(net->forward(batch).next_sentence.allclose(after.next_sentence));
    batch.input_mask = at::ones({2, 16}, at::kLong);
    const BertLogits ones = net->forward(batch);
    batch.input_mask = at::Tensor();
    EXPECT_TRUE(ones.masked_lm.allclose(net->forward(batch).masked_lm, 1e-10, 1e-12));
  }
}

TEST_F(TinyBert, HalfTheBitsHoldThePenalty) {
  const at::NoGradGuard no_grad;
  for (const BertAttention attention : {BertAttention::fused, BertAttention::plain}) {
    BertOptions options = tiny_bert();
    options.attention = attention;
    Bert net = filled_bert(options);
    const double exact = net->loss(tiny_batch()).total.item<double>();
    net->to(at::kHalf);
    BertBatch batch = tiny_batch();
    const BertLoss loss = net->loss(batch);
    EXPECT_EQ(loss.total.scalar_type(), at::kFloat);
    EXPECT_NEAR(loss.total.item<double>(), exact, 0.05);
    batch.input_mask.fill_(0);  // nothing to look at: every score is as far down
    EXPECT_TRUE(net->loss(batch).total.isfinite().item<bool>());
  }
}

TEST_F(TinyBert, PredictionsThatAreNoneDoNotCount) {
  Bert net = filled_bert(tiny_bert());
  BertBatch batch = tiny_batch();
  const at::Tensor words = net->forward(batch).masked_lm.detach();
  const auto cost = [&](std::int64_t row) {
    return -words[row].log_softmax(0)[batch.masked_lm_ids.flatten()[row].item<std::int64_t>()].item<double>();
  };
  const double two = cost(0) + cost(4);
  BertBatch weighted = batch;
  weighted.masked_lm_weights = at::tensor({1.0, 0.0, 0.0, 0.0, 1.0, 0.0}, at::kFloat).view({2, 3});
  EXPECT_NEAR(net->loss(weighted).masked_lm.item<double>(), two / (2 + 1e-5), 1e-6);
  batch.masked_lm_ids = at::tensor({66, -1, -100, -1, 41, -1}, at::kLong).view({2, 3});
  EXPECT_NEAR(net->loss(batch).masked_lm.item<double>(), two / 2, 1e-12);
}

TEST_F(TinyBert, DropsInTrainingOnly) {
  for (const auto& [hidden, attention] : {std::pair(0.1, 0.0), std::pair(0.0, 0.1)}) {
    for (const BertAttention kind : {BertAttention::fused, BertAttention::plain}) {
      BertOptions options = tiny_bert();
      options.dropout = hidden;
      options.attention_dropout = attention;
      options.attention = kind;
      Bert net = filled_bert(options);
      const auto loss = [&] { return net->loss(tiny_batch()).total.item<double>(); };
      EXPECT_NE(loss(), loss());
      net->eval();
      expect_close(loss(), 6.28527504, "without dropout");
    }
  }
}

void respell(Weights& weights, const std::string& here, const std::string& there) {
  const Weights old = std::move(weights);
  weights.clear();
  for (const auto& [key, tensor] : old) {
    std::string other = key;
    if (const auto at = other.find(here); at != std::string::npos) other.replace(at, here.size(), there);
    weights[other] = tensor;
  }
}

TEST_F(TinyBert, TakesTheWeightsOfEitherWorld) {
  Bert teacher(tiny_bert());
  oracle_fill(*teacher);
  const Weights stored = state_dict_of(*teacher);
  const at::Tensor words = stored.at("bert.embeddings.word_embeddings.weight");

  Weights face = stored;  // Hugging Face: every key
  face["cls.predictions.decoder.weight"] = words;
  face["cls.predictions.decoder.bias"] = stored.at("cls.predictions.bias");
  Weights nvidia = stored;
  for (const char* part : {"intermediate.", "pooler.", "transform."}) {
    respell(nvidia, std::string(part) + "dense.", std::string(part) + "dense_act.");
  }
  nvidia["cls.predictions.decoder.weight"] = words;
  ASSERT_TRUE(nvidia.contains("bert.encoder.layer.1.intermediate.dense_act.weight"));
  ASSERT_FALSE(nvidia.contains("bert.pooler.dense.weight"));
  Weights old = stored;  // TensorFlow's norms, and a buffer that once was
  respell(old, "LayerNorm.weight", "LayerNorm.gamma");
  respell(old, "LayerNorm.bias", "LayerNorm.beta");
  old["bert.embeddings.position_ids"] = at::zeros({1, 32});
  Weights decoder = stored;  // the tied tensor by its other name alone
  decoder.erase("bert.embeddings.word_embeddings.weight");
  decoder["cls.predictions.decoder.weight"] = words;

  Weights both = old;  // whose it is cannot be told
  both["bert.embeddings.LayerNorm.weight"] = stored.at("bert.embeddings.LayerNorm.weight") + 1;
  Bert refuses(tiny_bert());
  EXPECT_THROW(take_weights(*refuses, both), RefusedError);

  for (const Weights& weights : {stored, face, nvidia, old, decoder}) {
    Bert net(tiny_bert());
    take_weights(*net, weights);
    for (const auto& item : net->named_parameters()) {
      EXPECT_TRUE(item.value().equal(stored.at(item.key()))) << item.key();
    }
  }
  Bert net(tiny_bert());
  Weights torn = face;
  torn["cls.predictions.decoder.weight"] = words + 1;
  EXPECT_THAT(message_of<RefusedError>([&] { take_weights(*net, torn); }),
              HasSubstr("cls.predictions.decoder.weight is the same tensor as"));
  Weights less = stored;
  less.erase("bert.pooler.dense.bias");
  EXPECT_THAT(message_of<RefusedError>([&] { take_weights(*net, less); }),
              HasSubstr("bert.pooler.dense.bias (float32 [64]) is missing"));
}

TEST_F(TinyBert, GivesTheKeysOfHuggingFaceAndStoresTheTiedOnesOnce) {
  Bert net(tiny_bert());
  TrainState state;
  state.add("model", *net);
  const auto snapshot = stage(state);
  EXPECT_EQ(snapshot->layout->tensors().size(), 46U + 1U);  // and the CPU's generator
  const CheckpointIndex index = [&] {
    CheckpointIndex made;
    for (const TensorSpec& spec : snapshot->layout->tensors()) made.tensors.emplace_back().spec = spec;
    made.attributes = snapshot->attributes;
    return made;
  }();
  const auto exported = state_dict_of(index);
  EXPECT_EQ(exported.size(), 48U);
  std::map<std::string, std::string> names;
  for (const ExportedTensor& tensor : exported) names[tensor.key] = index.tensors[tensor.tensor].spec.name;
  EXPECT_EQ(names.at("cls.predictions.decoder.weight"), "model/bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(names.at("cls.predictions.decoder.bias"), "model/cls.predictions.bias");

  Bert other(tiny_bert());  // and goes on from such a checkpoint
  oracle_fill(*other);
  TrainState resumed;
  resumed.add("model", *other);
  resumed.check(snapshot->layout->tensors(), snapshot->attributes, {});
  resumed.load(*snapshot, {});
  EXPECT_EQ(digest(resumed), digest(*snapshot));
}

TEST_F(TinyBert, SaysInOneLineWhatIsWrong) {
  const auto refused = [](auto&& change) {
    BertOptions options = tiny_bert();
    change(options);
    return message_of<UsageError>([&] { Bert net(options); });
  };
  EXPECT_EQ(refused([](BertOptions& options) { options.heads = 5; }),
            "BERT: 64 hidden units cannot be shared by 5 heads: choose a divisor");
  EXPECT_EQ(refused([](BertOptions& options) { options.layers = 0; }), "BERT: layers must be at least 1");
  EXPECT_THAT(refused([](BertOptions& options) { options.dropout = 1; }), HasSubstr("below 1, not 1.0"));
  Bert net = filled_bert(tiny_bert());
  const auto said = [&](auto&& change) {
    BertBatch batch = tiny_batch();
    change(batch);
    const std::string message = message_of<UsageError>([&] { net->loss(batch); });
    EXPECT_THAT(message, testing::Not(HasSubstr("\n")));
    return message;
  };
  EXPECT_EQ(said([](BertBatch& batch) {
              batch.input_ids = at::zeros({2, 16});
            }),
            "BERT: input_ids must be int64 [sequences, tokens], not Float [2, 16]");
  EXPECT_EQ(said([](BertBatch& batch) {
              batch.input_ids = at::zeros({2, 33}, at::kLong);
            }),
            "BERT: a sequence of 33 tokens is longer than the model's 32 positions: cut it, or raise "
            "BertOptions::positions");
  EXPECT_EQ(said([](BertBatch& batch) { batch.segment_ids = at::Tensor(); }),
            "BERT: segment_ids must be int64 and as input_ids, not undefined");
  EXPECT_EQ(said([](BertBatch& batch) {
              batch.masked_lm_positions = at::zeros({3, 3}, at::kLong);
            }),
            "BERT: masked_lm_positions must be int64 [sequences, predictions], not Long [3, 3]");
  EXPECT_EQ(said([](BertBatch& batch) {
              batch.masked_lm_ids = at::zeros({2, 2}, at::kLong);
            }),
            "BERT: masked_lm_ids must be int64 and as masked_lm_positions, not Long [2, 2]");
  EXPECT_EQ(said([](BertBatch& batch) { batch.next_sentence_labels = at::zeros({3}, at::kLong); }),
            "BERT: next_sentence_labels must be int64 [sequences], not Long [3]");
  EXPECT_EQ(message_of<UsageError>([] { BertBatch::of({at::zeros({1})}); }),
            "BERT: a batch has seven fields (data/synthetic_text.h), not 1");
}

TEST(SyntheticText, IsAFunctionOfSeedAndStep) {
  const SyntheticTextOptions options{.tokens = 32, .predictions = 5, .vocabulary = 97, .mask_id = 3};
  const auto batch = synthetic_text(options, 8, 7, 4);
  const auto again = synthetic_text(options, 8, 7, 4);
  const auto half = synthetic_text(options, 4, 7, 9);  // samples 36...39: the second half
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_TRUE(batch[i].equal(again[i])) << i;
    EXPECT_TRUE(batch[i].slice(0, 4).equal(half[i])) << i;
  }
  EXPECT_FALSE(batch[0].equal(synthetic_text(options, 8, 7, 5)[0]));
  EXPECT_FALSE(batch[0].equal(synthetic_text(options, 8, 8, 4)[0]));

  const BertBatch text = BertBatch::of(synthetic_text(options, 500, 1, 0));
  EXPECT_EQ(text.input_ids.sizes(), (at::IntArrayRef{500, 32}));
  EXPECT_EQ(text.masked_lm_weights.scalar_type(), at::kFloat);
  EXPECT_TRUE(text.input_mask.eq(1).all().item<bool>());
  EXPECT_EQ(text.segment_ids.sum().item<std::int64_t>(), 500 * 16);
  EXPECT_TRUE(text.input_ids.gather(1, text.masked_lm_positions).eq(3).all().item<bool>());
  EXPECT_EQ(text.input_ids.eq(3).sum().item<std::int64_t>(), 500 * 5) << "distinct places, and no mask else";
  EXPECT_TRUE(text.masked_lm_ids.ne(3).all().item<bool>());
  EXPECT_EQ(text.masked_lm_positions.min().item<std::int64_t>(), 1);
  EXPECT_EQ(text.masked_lm_positions.max().item<std::int64_t>(), 31);
  EXPECT_GE(text.input_ids.min().item<std::int64_t>(), 0);
  EXPECT_EQ(text.input_ids.max().item<std::int64_t>(), 96);
  EXPECT_NEAR(text.next_sentence_labels.to(at::kFloat).mean().item<double>(), 0.5, 0.1);
  EXPECT_THROW(synthetic_text({.tokens = 8, .predictions = 8}, 1, 1, 0), UsageError);
  EXPECT_THROW(synthetic_text({.vocabulary = 100}, 1, 1, 0), UsageError);
}

TEST(SyntheticText, TheLabelTellsWhetherBothHalvesHaveOneTopic) {
  const BertBatch text = BertBatch::of(synthetic_text({.tokens = 32, .predictions = 5}, 2000, 1, 0));
  const at::Tensor words = text.input_ids.scatter(1, text.masked_lm_positions, text.masked_lm_ids);
  const auto first_word = [&](std::int64_t row) { return words[row][0].item<std::int64_t>(); };
  const auto second_half = [&](std::int64_t row) { return words[row].slice(0, 16); };
  const auto label = [&](std::int64_t row) { return text.next_sentence_labels[row].item<std::int64_t>(); };
  std::map<std::int64_t, at::Tensor> of_one_topic;
  for (std::int64_t row = 0; row < 2000; ++row) {
    if (label(row) != 0) continue;
    EXPECT_TRUE(
        of_one_topic.emplace(first_word(row), second_half(row)).first->second.equal(second_half(row)));
  }
  EXPECT_EQ(of_one_topic.size(), 64u);
  for (std::int64_t row = 0; row < 2000; ++row) {
    if (label(row) == 0) continue;
    EXPECT_FALSE(of_one_topic.at(first_word(row)).equal(second_half(row)));
  }
}

}}  // namespace holdfast::test
