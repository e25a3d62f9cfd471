#include "examples/models/bert.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>

#include <cmath>
#include <optional>
#include <sstream>

#include "examples/models/layers.h"
#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using torch::nn::LayerNorm;
using torch::nn::Linear;
using torch::nn::Module;

constexpr double kDeviation = 0.02;  // of initial weights: initializer_range of the authors' program
constexpr double kMasked = -10000;   // added to the scores of padding; FP16 can hold it
constexpr std::int64_t kNoPrediction = -1;
constexpr char kWords[] = "bert.embeddings.word_embeddings.weight";
constexpr char kWordBias[] = "cls.predictions.bias";

// A submodule that only gives its children their names.
std::shared_ptr<Module> group(Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<Module>(name));
}
LayerNorm add_norm(Module& parent, const BertOptions& options) {
  return parent.register_module(
      "LayerNorm", LayerNorm(torch::nn::LayerNormOptions({options.hidden}).eps(options.norm_eps)));
}
Linear add_linear(Module& parent, const char* name, std::int64_t in, std::int64_t out) {
  return parent.register_module(name, models::undrawn_linear(in, out));
}

at::Tensor activate(BertGelu kind, const at::Tensor& x) {
  return at::gelu(x, kind == BertGelu::tanh ? "tanh" : "none");
}

// Casts once: under autocast each of the three products would cast their common input again.
at::Tensor cast_once(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device) || x.scalar_type() == at::kDouble) return x;
  return x.to(at::autocast::get_autocast_dtype(device));
}

// 16-bit logits would lose small differences in the loss.
at::Tensor wide(const at::Tensor& logits) {
  const bool narrow = logits.scalar_type() == at::kHalf || logits.scalar_type() == at::kBFloat16;
  return narrow ? logits.to(at::kFloat) : logits;
}

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::ostringstream text;
  text << tensor.scalar_type() << ' ' << tensor.sizes();
  return text.str();
}

void require(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type, const char* name,
             const char* wanted) {
  if (tensor.defined() && tensor.sizes() == sizes && tensor.scalar_type() == type) return;
  throw UsageError("BERT: " + std::string(name) + " must be " + wanted + ", not " + text_of(tensor));
}

void check(const BertOptions& options) {
  const std::pair<const char*, std::int64_t> counts[] = {{"vocabulary", options.vocabulary},
                                                         {"hidden", options.hidden},
                                                         {"layers", options.layers},
                                                         {"heads", options.heads},
                                                         {"inner", options.inner},
                                                         {"positions", options.positions},
                                                         {"types", options.types}};
  for (const auto& [name, count] : counts) {
    if (count < 1) throw UsageError("BERT: " + std::string(name) + " must be at least 1");
  }
  if (options.hidden % options.heads != 0) {
    throw UsageError("BERT: " + std::to_string(options.hidden) + " hidden units cannot be shared by " +
                     std::to_string(options.heads) + " heads: choose a divisor");
  }
  for (const double dropout : {options.dropout, options.attention_dropout}) {
    if (dropout >= 0 && dropout < 1) continue;
    throw UsageError("BERT: dropout is a probability of at least 0 and below 1, not " +
                     std::to_string(dropout));
  }
}

}  // namespace

class BertLayerImpl : public Module {
 public:
  explicit BertLayerImpl(const BertOptions& options) : options_(options) {
    const std::int64_t hidden = options.hidden;
    const auto attention = group(*this, "attention");
    const auto self = group(*attention, "self");
    query_ = add_linear(*self, "query", hidden, hidden);
    key_ = add_linear(*self, "key", hidden, hidden);
    value_ = add_linear(*self, "value", hidden, hidden);
    const auto mixed = group(*attention, "output");
    mix_ = add_linear(*mixed, "dense", hidden, hidden);
    mix_norm_ = add_norm(*mixed, options);
    widen_ = add_linear(*group(*this, "intermediate"), "dense", hidden, options.inner);
    const auto output = group(*this, "output");
    narrow_ = add_linear(*output, "dense", options.inner, hidden);
    norm_ = add_norm(*output, options);
  }

  // x: [B, S, hidden]; penalty: [B, 1, 1, S], added to the scores, or undefined.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& penalty) {
    // The norm of each sum, behind both halves, as in the original paper (post-LN).
    const at::Tensor mixed = mix_norm_(drop(mix_(attend(x, penalty))) + x);
    return norm_(drop(narrow_(activate(options_.gelu, widen_(mixed)))) + mixed);
  }

 private:
  at::Tensor drop(const at::Tensor& x) { return at::dropout(x, options_.dropout, is_training()); }

  at::Tensor attend(const at::Tensor& x, const at::Tensor& penalty) {
    const std::int64_t width = options_.hidden / options_.heads;
    const auto split = [&](const at::Tensor& all) {  // [B, heads, S, width]
      // Heads as a dimension of their own, without a copy.
      return all.view({x.size(0), x.size(1), options_.heads, width}).transpose(1, 2);
    };
    const at::Tensor narrow = cast_once(x);
    const at::Tensor query = split(query_(narrow)), key = split(key_(narrow)), value = split(value_(narrow));
    std::optional<at::Tensor> added;
    if (penalty.defined()) added = penalty.to(query.scalar_type());
    const double dropout = is_training() ? options_.attention_dropout : 0;
    at::Tensor mixed;
    if (options_.attention == BertAttention::fused) {
      mixed = at::scaled_dot_product_attention(query, key, value, added, dropout);
    } else {
      // Scaled before the product, so that FP16 cannot overflow in it.
      at::Tensor scores = at::matmul(query / std::sqrt(static_cast<double>(width)), key.transpose(-1, -2));
      if (added) scores = scores.add_(*added);
      mixed = at::matmul(at::dropout(at::softmax(scores, -1), dropout, dropout > 0), value);
    }
    return mixed.transpose(1, 2).reshape(x.sizes());
  }

  BertOptions options_;
  Linear query_{nullptr}, key_{nullptr}, value_{nullptr}, mix_{nullptr}, widen_{nullptr}, narrow_{nullptr};
  LayerNorm mix_norm_{nullptr}, norm_{nullptr};
};

BertOptions bert_large(ModelVariant variant) {
  BertOptions options;
  if (variant == ModelVariant::torchvision) {
    options.gelu = BertGelu::erf;
    options.padding_idx = true;
    options.truncated = false;
  }
  return options;
}

BertBatch BertBatch::of(const std::vector<at::Tensor>& fields) {
  if (fields.size() != 7) {
    throw UsageError("BERT: a batch has seven fields (data/synthetic_text.h), not " +
                     std::to_string(fields.size()));
  }
  return {fields[0], fields[1], fields[2], fields[3], fields[4], fields[5], fields[6]};
}

BertImpl::BertImpl(const BertOptions& options) : options_(options) {
  check(options);
  const auto bert = group(*this, "bert");
  const auto embeddings = group(*bert, "embeddings");
  const auto add_embedding = [&](const char* name, std::int64_t rows, bool padding) {
    torch::nn::EmbeddingOptions embedding(rows, options.hidden);
    if (padding) embedding.padding_idx(0);
    // Empty weights, because initialize() draws them; the constructor would draw them once more.
    return embeddings->register_module(
        name, torch::nn::Embedding(embedding._weight(at::empty({rows, options.hidden}))));
  };
  words_ = add_embedding("word_embeddings", options.vocabulary, options.padding_idx);
  positions_ = add_embedding("position_embeddings", options.positions, false);
  types_ = add_embedding("token_type_embeddings", options.types, false);
  norm_ = add_norm(*embeddings, options);
  const auto stack = group(*group(*bert, "encoder"), "layer");
  for (std::int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(stack->register_module(std::to_string(i), std::make_shared<BertLayerImpl>(options)));
  }
  pooler_ = add_linear(*group(*bert, "pooler"), "dense", options.hidden, options.hidden);
  add_head();
  if (options.initialize) initialize();
}

void BertImpl::add_head() {
  const auto cls = group(*this, "cls");
  const auto predictions = group(*cls, "predictions");
  word_bias_ = predictions->register_parameter("bias", at::empty({options_.vocabulary}));
  const auto transform = group(*predictions, "transform");
  transform_ = add_linear(*transform, "dense", options_.hidden, options_.hidden);
  transform_norm_ = add_norm(*transform, options_);
  next_sentence_ = add_linear(*cls, "seq_relationship", options_.hidden, 2);
}

at::Tensor BertImpl::encode(const BertBatch& batch) {
  const at::Tensor& ids = batch.input_ids;
  if (!ids.defined() || ids.dim() != 2 || ids.scalar_type() != at::kLong) {
    throw UsageError("BERT: input_ids must be int64 [sequences, tokens], not " + text_of(ids));
  }
  if (ids.size(1) > options_.positions) {
    throw UsageError("BERT: a sequence of " + std::to_string(ids.size(1)) +
                     " tokens is longer than the model's " + std::to_string(options_.positions) +
                     " positions: cut it, or raise BertOptions::positions");
  }
  require(batch.segment_ids, ids.sizes(), at::kLong, "segment_ids", "int64 and as input_ids");
  at::Tensor x = words_(ids) + types_(batch.segment_ids);
  // Positions are 0, 1, 2 and so on for every sequence, so a slice replaces a look-up.
  x = x.add_(positions_->weight.slice(0, 0, ids.size(1)));
  at::Tensor penalty;
  if (batch.input_mask.defined()) {
    require(batch.input_mask, ids.sizes(), at::kLong, "input_mask", "int64 and as input_ids, or undefined");
    penalty = (1 - batch.input_mask).view({ids.size(0), 1, 1, ids.size(1)}).to(x.scalar_type()) * kMasked;
  }
  x = at::dropout(norm_(x), options_.dropout, is_training());
  for (const auto& layer : layers_) x = layer->forward(x, penalty);
  return x;
}

at::Tensor BertImpl::masked_lm(const at::Tensor& hidden, const BertBatch& batch) {
  const at::Tensor& positions = batch.masked_lm_positions;
  const std::int64_t sequences = hidden.size(0), tokens = hidden.size(1);
  if (!positions.defined() || positions.dim() != 2 || positions.size(0) != sequences ||
      positions.scalar_type() != at::kLong) {
    throw UsageError("BERT: masked_lm_positions must be int64 [sequences, predictions], not " +
                     text_of(positions));
  }
  // Sequences are joined to one matrix, so positions count from each sequence's beginning.
  const at::Tensor starts = at::arange(0, sequences * tokens, tokens, positions.options()).unsqueeze(1);
  // Only the masked positions reach the decoder. For all positions it would cost 8 % of BERT-Large's
  // arithmetic.
  const at::Tensor gathered =
      hidden.reshape({sequences * tokens, options_.hidden}).index_select(0, (positions + starts).flatten());
  const at::Tensor x = transform_norm_(activate(options_.gelu, transform_(gathered)));
  // The word embedding is the decoder: the two share one tensor.
  // It is registered once: parameters() of LibTorch in C++ lists a tensor for each registration, and an
  // optimizer would update it twice.
  return at::linear(x, words_->weight, word_bias_);
}

BertLogits BertImpl::forward(const BertBatch& batch) {
  const at::Tensor hidden = encode(batch);
  const at::Tensor pooled = at::tanh(pooler_(hidden.select(1, 0)));
  return {masked_lm(hidden, batch), next_sentence_(pooled)};
}

BertLoss BertImpl::loss(const BertBatch& batch) {
  const auto [words, next] = forward(batch);
  require(batch.masked_lm_ids, batch.masked_lm_positions.sizes(), at::kLong, "masked_lm_ids",
          "int64 and as masked_lm_positions");
  require(batch.next_sentence_labels, {next.size(0)}, at::kLong, "next_sentence_labels", "int64 [sequences]");
  // Any negative label means "no prediction", as -100 in PyTorch's programs.
  const at::Tensor labels = batch.masked_lm_ids.flatten().clamp_min(kNoPrediction);
  BertLoss loss;
  if (batch.masked_lm_weights.defined()) {
    require(batch.masked_lm_weights, batch.masked_lm_ids.sizes(), at::kFloat, "masked_lm_weights",
            "float and as masked_lm_ids, or undefined");
    const at::Tensor each =
        at::cross_entropy_loss(wide(words), labels, {}, at::Reduction::None, kNoPrediction);
    const at::Tensor weights = batch.masked_lm_weights.flatten();
    // 1e-5 as in Google's BERT, for a batch without predictions.
    loss.masked_lm = (each * weights).sum() / (weights.sum() + 1e-5);
  } else {
    loss.masked_lm = at::cross_entropy_loss(wide(words), labels, {}, at::Reduction::Mean, kNoPrediction);
  }
  loss.next_sentence = at::cross_entropy_loss(wide(next), batch.next_sentence_labels);
  loss.total = loss.masked_lm + loss.next_sentence;
  return loss;
}

void BertImpl::initialize() {
  const at::NoGradGuard no_grad;
  const auto draw = [&](at::Tensor weight) {
    options_.truncated ? models::draw_truncated_normal(weight, kDeviation)
                       : static_cast<void>(weight.normal_(0, kDeviation));
  };
  for (const auto& module : modules(/*include_self=*/false)) {
    if (auto* embedding = module->as<torch::nn::EmbeddingImpl>()) draw(embedding->weight);
    if (auto* norm = module->as<torch::nn::LayerNormImpl>()) norm->reset_parameters();
    if (auto* linear = module->as<torch::nn::LinearImpl>()) {
      draw(linear->weight);
      linear->bias.zero_();
    }
  }
  word_bias_.zero_();
  // The padding word's vector stays zero, as torch.nn.Embedding keeps it.
  if (options_.padding_idx) words_->weight[0].zero_();
}

std::vector<TiedKey> BertImpl::tied_keys() const {
  return {{"cls.predictions.decoder.weight", kWords}, {"cls.predictions.decoder.bias", kWordBias}};
}

std::vector<Spelling> BertImpl::spellings() const {
  // NVIDIA's DeepLearningExamples say dense_act, TensorFlow's checkpoints gamma and beta. Older files of
  // Hugging Face have position_ids.
  return {{".dense_act.", ".dense."},
          {"LayerNorm.gamma", "LayerNorm.weight"},
          {"LayerNorm.beta", "LayerNorm.bias"},
          {"bert.embeddings.position_ids", ""}};
}

BertWork count_work(const BertOptions& options, std::int64_t tokens, std::int64_t predictions) {
  const auto hidden = static_cast<double>(options.hidden), length = static_cast<double>(tokens);
  // Each token of a layer takes four products of hidden by hidden, and two with the inner width. Attention
  // adds two products of length by length.
  const double linear = hidden * (4 * hidden + 2 * static_cast<double>(options.inner)) * length;
  const double attention = 2 * length * length * hidden;
  const double word = hidden * (hidden + static_cast<double>(options.vocabulary));
  BertWork work;
  // The pooler and the two logits of the next sentence see one token of a sequence.
  work.forward_macs = static_cast<double>(options.layers) * (linear + attention) +
                      static_cast<double>(predictions) * word + hidden * hidden + 2 * hidden;
  // A multiply-add is two operations, and the backward pass costs twice the forward pass.
  work.train_flops = 6 * work.forward_macs;
  return work;
}

}}  // namespace holdfast::v0_2
