// BERT against numbers of Hugging Face's and NVIDIA's: loss, logits and gradients of a small one in float64,
// three updates by LAMB; of BERT-Large the counts, and by night the numbers, too.
#include "examples/models/bert.h"

#include <gmock/gmock.h>

#include <cmath>

#include "holdfast/optim/decay_groups.h"
#include "holdfast/optim/lamb.h"
#include "support/nightly.h"
#include "unit/models/tiny_bert.h"

namespace holdfast::test { namespace {

double norm_of(Bert& net, const std::string& name) {
  return net->named_parameters()[name].grad().norm().item<double>();
}

struct TinyOracle {
  BertGelu gelu;
  bool padding_idx;
  double loss, masked_lm, next_sentence, logits, logits_abs, first_logit, second_logit, grad_norm;
  double words, key;  // gradient norms; 0: not known
};
constexpr TinyOracle kTiny[] = {
    {BertGelu::erf, true, 6.28527504, 6.04127954, .243995494, 35.2161129, 637.985699, .425110789, 1.17425068,
     17.5582403, 4.92257725, 1.54153643},
    {BertGelu::tanh, true, 6.28508196, 6.0410514, .244030562, 35.1854596, 637.990817, .424900483, 1.17475865,
     17.5589877, 4.92250031, 1.54165907},
    {BertGelu::erf, false, 6.28527504, 6.04127954, .243995494, 35.2161129, 637.985699, .425110789, 1.17425068,
     17.5981367, 0, 1.54153643},
};

// Losses, and the norm of the gradients that stay behind.
template <class Oracle>
void expect_losses(Bert& net, const BertBatch& batch, const Oracle& oracle) {
  const BertLoss loss = net->loss(batch);
  expect_close(loss.total.item<double>(), oracle.loss, "loss");
  expect_close(loss.masked_lm.item<double>(), oracle.masked_lm, "masked words");
  expect_close(loss.next_sentence.item<double>(), oracle.next_sentence, "next sentence");
  loss.total.backward();
  expect_close(gradient_norm(*net), oracle.grad_norm, "norm of the gradients");
}

TEST_F(TinyBert, IsTheOriginalsInFloat64) {
  const BertBatch batch = tiny_batch();
  EXPECT_EQ(batch.input_ids[0][0].item<std::int64_t>(), 30);
  EXPECT_EQ(batch.masked_lm_ids[1][2].item<std::int64_t>(), 52);
  for (const TinyOracle& oracle : kTiny) {
    for (const BertAttention attention : {BertAttention::fused, BertAttention::plain}) {
      SCOPED_TRACE(std::string(oracle.gelu == BertGelu::erf ? "erf" : "tanh") +
                   (oracle.padding_idx ? ", Hugging Face" : ", NVIDIA") +
                   (attention == BertAttention::plain ? ", plain" : ", fused"));
      BertOptions options = tiny_bert(oracle.gelu, oracle.padding_idx);
      options.attention = attention;
      Bert net = filled_bert(options);
      expect_parameters(*net, 472.637362, 12254.2463);
      const BertLogits logits = net->forward(batch);
      expect_close(logits.masked_lm.sum().item<double>(), oracle.logits, "sum of the logits");
      expect_close(logits.masked_lm.abs().sum().item<double>(), oracle.logits_abs, "their absolute sum");
      expect_close(logits.masked_lm[0][0].item<double>(), oracle.first_logit, "first logit");
      expect_close(logits.masked_lm[0][1].item<double>(), oracle.second_logit, "second logit");
      expect_losses(net, batch, oracle);
      if (oracle.words > 0) {
        expect_close(norm_of(net, "bert.embeddings.word_embeddings.weight"), oracle.words, "words");
      }
      expect_close(norm_of(net, "bert.encoder.layer.1.attention.self.key.weight"), oracle.key, "key");
    }
  }
}

struct LambOracle {
  const char* what;
  bool padding_idx, adapt_all;
  double losses[4];
  double parameters;  // their sum after three updates; 0: rounding noise decides
};
constexpr LambOracle kLamb[] = {
    {"apex, Hugging Face", true, false, {6.28527504, 3.5683714, 2.15054672, 1.22667783}, 476.228275},
    {"nvlamb, Hugging Face", true, true, {6.28527504, 3.55687124, 2.07777207, 1.22751566}, 0},
    {"apex, NVIDIA", false, false, {6.28527504, 3.56985835, 2.14958116, 1.22493142}, 476.101233},
    {"nvlamb, NVIDIA", false, true, {6.28527504, 3.55879056, 2.07750642, 1.22696512}, 0},
};

TEST_F(TinyBert, LearnsByLambAsTheOriginals) {
  for (const LambOracle& oracle : kLamb) {
    SCOPED_TRACE(oracle.what);
    Bert net = filled_bert(tiny_bert(BertGelu::erf, oracle.padding_idx));
    const auto options = LambOptions(0.01).weight_decay(0.01).max_grad_norm(1).adapt_all(oracle.adapt_all);
    Lamb lamb(decay_groups(*net, options), options);
    EXPECT_EQ(lamb.param_groups()[0].params().size(), 18U);
    EXPECT_EQ(lamb.param_groups()[1].params().size(), 28U);
    for (int step = 0; step < 4; ++step) {
      lamb.zero_grad();
      const at::Tensor loss = net->loss(tiny_batch()).total;
      expect_close(loss.item<double>(), oracle.losses[step], "loss " + std::to_string(step));
      if (step == 3) break;
      loss.backward();
      lamb.step();
    }
    double sum = 0;
    for (const at::Tensor& parameter : net->parameters()) sum += parameter.sum().item<double>();
    if (oracle.parameters > 0) expect_close(sum, oracle.parameters, "sum of the parameters");
  }
}

struct LargeOracle {
  std::int64_t tokens, predictions, sequences;
  double loss, masked_lm, next_sentence, logits, logits_abs;
  double first[4];
  double next_logits[2];
  double grad_norm, words, key, next_weight;
};
constexpr LargeOracle kLarge[] = {
    {128,
     20,
     2,
     11.1510761,
     10.473392,
     .67768413,
     -955.690833,
     634146.1,
     {-1.10816211, 1.13934909, -.826974544, .240708916},
     {.0118049576, .0710315389},
     20.8843257,
     5.37305144,
     .0357425444,
     1.54934634},
    {512,
     80,
     1,
     11.2345055,
     10.5011634,
     .733342112,
     -2303.83031,
     1268918.89,
     {-1.04023997, 1.13407481, -.784970009, .235469808},
     {-.049299804, .0295366645},
     48.1626494,
     4.22194943,
     .0689474356,
     11.5113978},
};

TEST(BertLarge, IsTheOriginalInFloat64) {
  if (!nightly()) GTEST_SKIP() << "minutes and 6 GB: tests/run --nightly";
  BertOptions options = without_dropout(bert_large(ModelVariant::torchvision));
  options.initialize = false;
  Bert net(options);
  net->to(at::kDouble);
  oracle_fill(*net, [](const at::Tensor&) { return 0.02 * std::sqrt(3.0); });
  expect_parameters(*net, 51180.7438, 5883815.63);
  for (const LargeOracle& oracle : kLarge) {
    SCOPED_TRACE(oracle.tokens);
    net->zero_grad();
    const BertBatch batch = oracle_batch(oracle.sequences, oracle.tokens, oracle.predictions, 30522);
    EXPECT_EQ(batch.input_ids[0][0].item<std::int64_t>(), 3939);
    EXPECT_EQ(batch.masked_lm_ids[0][0].item<std::int64_t>(), 14959);
    {
      const at::NoGradGuard no_grad;
      const auto [words, next] = net->forward(batch);
      expect_close(words.sum().item<double>(), oracle.logits, "sum of the logits");
      expect_close(words.abs().sum().item<double>(), oracle.logits_abs, "their absolute sum");
      for (int i = 0; i < 4; ++i) {
        expect_close(words[0][i].item<double>(), oracle.first[i], "logit " + std::to_string(i));
      }
      for (int i = 0; i < 2; ++i) expect_close(next[0][i].item<double>(), oracle.next_logits[i], "next");
    }
    expect_losses(net, batch, oracle);
    expect_close(norm_of(net, "bert.embeddings.word_embeddings.weight"), oracle.words, "words");
    expect_close(norm_of(net, "bert.encoder.layer.12.attention.self.key.weight"), oracle.key, "key");
    expect_close(norm_of(net, "cls.seq_relationship.weight"), oracle.next_weight, "next sentence's weight");
  }
}

TEST(BertLarge, HasTheParametersNamesAndArithmeticOfTheOriginal) {
  BertOptions options = bert_large();
  options.initialize = false;  // no page of its gigabyte is touched
  const Bert net(options);
  std::int64_t numbers = 0;
  for (const at::Tensor& parameter : net->parameters()) numbers += parameter.numel();
  EXPECT_EQ(numbers, 336'226'108);
  const std::vector<std::string> keys = net->named_parameters().keys();
  ASSERT_EQ(keys.size(), 398U);
  EXPECT_EQ(net->buffers().size(), 0U);
  EXPECT_EQ(keys.size() + net->tied_keys().size(), 400U);
  EXPECT_EQ(keys[0], "bert.embeddings.word_embeddings.weight");
  EXPECT_EQ(keys[1], "bert.embeddings.position_embeddings.weight");
  EXPECT_EQ(keys[2], "bert.embeddings.token_type_embeddings.weight");
  EXPECT_EQ(keys[4], "bert.embeddings.LayerNorm.bias");
  EXPECT_EQ(keys[5 + 8 * 16], "bert.encoder.layer.8.attention.self.query.weight");
  EXPECT_EQ(keys[5 + 16 * 16 + 5], "bert.encoder.layer.16.attention.self.value.bias");
  EXPECT_EQ(keys[389], "bert.pooler.dense.weight");
  EXPECT_EQ(keys[391], "cls.predictions.bias");
  EXPECT_EQ(keys[395], "cls.predictions.transform.LayerNorm.bias");
  EXPECT_EQ(keys[397], "cls.seq_relationship.bias");
  EXPECT_NEAR(count_work(options, 128, 20).forward_macs / 1e9, 40.1071, 0.00005);
  EXPECT_NEAR(count_work(options, 128, 20).train_flops / 1e9, 240.643, 0.0005);
  EXPECT_NEAR(count_work(options, 512, 80).forward_macs / 1e9, 170.0890, 0.00005);
  EXPECT_NEAR(count_work(options, 512, 80).train_flops / 1e9, 1020.534, 0.0005);
}

}}  // namespace holdfast::test
