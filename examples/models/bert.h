// BERT for pre-training (Devlin et al. 2018, arXiv:1810.04805): masked words and next sentence. Default:
// BERT-Large.
//
//   holdfast::Bert net(holdfast::bert_large());                     // 336,226,108 parameters in 398 tensors
//   const holdfast::BertLoss loss = net->loss(batch);               // BertBatch of B sequences of S tokens
//   loss.total.backward();
//   holdfast::Lamb optimizer(holdfast::decay_groups(*net, …), …);   // optim/lamb.h
//
// docs/models_and_the_published_table.md has layers, variants and the names that imports accept. Errors:
// UsageError for impossible options and for batches of wrong shapes or types. Values out of range (token,
// position, label) are torch's error on a CPU and undefined on a GPU. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "examples/models/variant.h"
#include "holdfast/state/other_keys.h"

namespace holdfast { inline namespace v0_2 {

enum class BertGelu { erf, tanh };
// fused: at::scaled_dot_product_attention. On a GPU it is one kernel that never stores the S x S
// probabilities; on a CPU too while dropout is 0. plain: two products and a softmax, for comparisons. Results
// agree up to rounding; dropout draws other numbers.
enum class BertAttention { fused, plain };

// Defaults are BERT-Large in the variant `table`.
struct BertOptions {
  std::int64_t vocabulary = 30522;
  std::int64_t hidden = 1024;
  std::int64_t layers = 24;
  std::int64_t heads = 16;  // divides `hidden`
  std::int64_t inner = 4096;
  std::int64_t positions = 512;  // longest sequence
  std::int64_t types = 2;
  double dropout = 0.1;            // of embeddings and of both halves of a layer
  double attention_dropout = 0.1;  // of the attention probabilities
  double norm_eps = 1e-12;         // torch computes norms in FP32 at least, where this is not 0
  BertAttention attention = BertAttention::fused;
  // Differences between the variants.
  BertGelu gelu = BertGelu::tanh;
  bool padding_idx = false;  // row 0 of the word embeddings is padding: zero, without gradients from look-ups
  bool truncated = true;     // initial normals are cut at two deviations
  bool initialize = true;    // false leaves all parameters undefined: saves time if a resume overwrites them
};

BertOptions bert_large(ModelVariant variant = ModelVariant::table);

// All tensors are on the model's device; integers are int64.
struct BertBatch {
  at::Tensor input_ids;             // [B, S]
  at::Tensor segment_ids;           // [B, S]: 0 or 1
  at::Tensor input_mask;            // [B, S]: 1 token, 0 padding; undefined: no padding, which GPUs compute
                                    // fastest
  at::Tensor masked_lm_positions;   // [B, P]: places of the tokens to predict
  at::Tensor masked_lm_ids;         // [B, P]: the tokens there; a value below 0 is ignored
  at::Tensor masked_lm_weights;     // float [B, P]; undefined: 1 for each that is not ignored
  at::Tensor next_sentence_labels;  // [B]: 0: the second half follows the first, 1: it does not

  // Takes the seven fields of a batch, in this order (data/synthetic_text.h).
  static BertBatch of(const std::vector<at::Tensor>& fields);
};

struct BertLogits {
  at::Tensor masked_lm;      // [B * P, vocabulary]
  at::Tensor next_sentence;  // [B, 2]
};

// Scalars, computed in FP32 if logits are narrower. masked_lm: mean cross-entropy of the words that are not
// ignored; with weights sum(w ce) / (sum(w) + 1e-5), as in TensorFlow. A batch without words gives NaN, or 0
// with weights. total is the sum of the two.
struct BertLoss {
  at::Tensor total, masked_lm, next_sentence;
};

class BertLayerImpl;

class BertImpl : public torch::nn::Module, public OtherKeys {
 public:
  explicit BertImpl(const BertOptions& options = {});

  BertLogits forward(const BertBatch& batch);
  BertLoss loss(const BertBatch& batch);
  // Output of the last layer: [B, S, hidden].
  at::Tensor encode(const BertBatch& batch);

  // Draws all parameters again.
  void initialize();
  const BertOptions& options() const { return options_; }

  std::vector<TiedKey> tied_keys() const override;
  std::vector<Spelling> spellings() const override;

 private:
  void add_head();
  at::Tensor masked_lm(const at::Tensor& hidden, const BertBatch& batch);

  BertOptions options_;
  torch::nn::Embedding words_{nullptr}, positions_{nullptr}, types_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  std::vector<std::shared_ptr<BertLayerImpl>> layers_;
  torch::nn::Linear pooler_{nullptr}, transform_{nullptr}, next_sentence_{nullptr};
  torch::nn::LayerNorm transform_norm_{nullptr};
  at::Tensor word_bias_;
};
TORCH_MODULE(Bert);

// Closed form for one sequence: multiply-adds of linear layers and products (forward), and operations of
// forward and backward (6 per multiply-add; nothing is recomputed).
struct BertWork {
  double forward_macs = 0;
  double train_flops = 0;
};
BertWork count_work(const BertOptions& options, std::int64_t tokens, std::int64_t predictions);

}}  // namespace holdfast::v0_2
