// BERT for pre-training (Devlin et al. 2018, arXiv:1810.04805): masked words and next sentence, BERT-Large
// unless told otherwise.
//
//   holdfast::Bert net(holdfast::bert_large());                     // 336,226,108 parameters in 398 tensors
//   const holdfast::BertLoss loss = net->loss(batch);               // BertBatch of B sequences of S tokens
//   loss.total.backward();
//   holdfast::Lamb optimizer(holdfast::decay_groups(*net, …), …);   // optim/lamb.h
//
// Layers. Word + position + type embeddings, norm, dropout; per layer: self-attention, linear, dropout, norm
// of the sum with what went in; linear to `inner`, GELU, linear, dropout, norm of the sum. Pooler: linear and
// tanh of the first token, then linear to 2 (next sentence). Masked words: their positions alone are gathered
// before the head (all S would cost BERT-Large 8 % more), then linear, GELU, norm, and the word embeddings
// once more as the last product, plus a bias.
//
// Two worlds. ModelVariant::table is NVIDIA's harness behind the published table (DeepLearningExamples):
// GELU by tanh, every row of the word embeddings learns, truncated normals of 0.02. ModelVariant::torchvision
// is Hugging Face's BertForPreTraining with hidden_act="gelu": GELU by erf, row 0 (padding) starts at zero
// and gets no gradient from look-ups, normals of 0.02. Forward differs by the GELU alone. Biases start at 0,
// norms at 1 and 0. Drawn from the global CPU generator, in registration order. BertOptions{} is the table's,
// unlike the options of other models; bert_large(ModelVariant::torchvision) gives Hugging Face's.
//
// Names. Parameters have Hugging Face's names and order. The tied embedding is registered once, so that an
// optimizer steps it once; the two keys that a state dict has beyond it, cls.predictions.decoder.weight and
// .bias, are written by exports and accepted by imports (state/other_keys.h), and may be absent. Imports also
// take NVIDIA's names ("dense_act" for "dense"), TensorFlow's "gamma" and "beta" of norms, and pass over the
// buffer position_ids.
//
// Attention. BertAttention::fused is at::scaled_dot_product_attention: on a GPU one kernel that never stores
// the S x S probabilities, on a CPU the same while dropout is 0. BertAttention::plain is two products and a
// softmax, the form to compare with. The numbers agree up to rounding; dropout draws another stream. Padding
// adds (1 - mask) * -10000 to the scores, which FP16 can hold; a batch without a mask has none to add, and
// only then GPUs take their quickest kernel. The losses are computed in FP32 where logits are narrower.
//
// Errors: UsageError for options that cannot be and for batches of other shapes or types; a token, position
// or label out of range is Torch's error on a CPU and undefined on a GPU. Threads: as torch::nn::Module.
#pragma once

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/models/variant.h"
#include "holdfast/state/other_keys.h"

namespace holdfast::inline v1 {

enum class BertGelu { erf, tanh };
enum class BertAttention { fused, plain };

struct BertOptions {
  std::int64_t vocabulary = 30522;
  std::int64_t hidden = 1024;
  std::int64_t layers = 24;
  std::int64_t heads = 16;  // divides hidden
  std::int64_t inner = 4096;
  std::int64_t positions = 512;  // the longest sequence
  std::int64_t types = 2;
  double dropout = 0.1;            // of embeddings and of each half of a layer
  double attention_dropout = 0.1;  // of the probabilities
  double norm_eps = 1e-12;         // Torch's norms compute in FP32 at least, where this is not 0
  BertAttention attention = BertAttention::fused;
  // What the two worlds have differently.
  BertGelu gelu = BertGelu::tanh;
  bool padding_idx = false;  // row 0 of the word embeddings is padding's: zero, and no gradient of look-ups
  bool truncated = true;     // normals cut at two deviations
  bool initialize = true;    // false leaves every parameter undefined, for a resume that overwrites them
};

BertOptions bert_large(ModelVariant variant = ModelVariant::table);

// All on the model's device, integers int64.
struct BertBatch {
  at::Tensor input_ids;             // [B, S]
  at::Tensor segment_ids;           // [B, S]: 0 or 1
  at::Tensor input_mask;            // [B, S]: 1 a token, 0 padding; undefined: all are tokens
  at::Tensor masked_lm_positions;   // [B, P]: which tokens are to be predicted
  at::Tensor masked_lm_ids;         // [B, P]: what they were; any below 0 is none
  at::Tensor masked_lm_weights;     // float [B, P]; undefined: 1 for each that is one
  at::Tensor next_sentence_labels;  // [B]: 0 the second half follows the first, 1 it does not

  // From a loader's batch (data/synthetic_text.h): the fields in this order, all seven.
  static BertBatch of(const std::vector<at::Tensor>& fields);
};

struct BertLogits {
  at::Tensor masked_lm;      // [B * P, vocabulary]
  at::Tensor next_sentence;  // [B, 2]
};

// Scalars. Masked words: the mean cross-entropy over those that are one; with weights, TensorFlow's
// sum(w ce) / (sum(w) + 1e-5). A batch without any gives NaN, or 0 with weights. total is the sum of the two.
struct BertLoss {
  at::Tensor total, masked_lm, next_sentence;
};

class BertLayerImpl;

class BertImpl : public torch::nn::Module, public OtherKeys {
 public:
  explicit BertImpl(const BertOptions& options = {});

  BertLogits forward(const BertBatch& batch);
  BertLoss loss(const BertBatch& batch);
  // What the last layer gives: [B, S, hidden].
  at::Tensor encode(const BertBatch& batch);

  // (Re)draws every parameter.
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

// Closed form for one sequence: multiply-adds of linear layers and products, forward, and the operations of
// forward and backward (6 a multiply-add; nothing is recomputed).
struct BertWork {
  double forward_macs = 0;
  double train_flops = 0;
};
BertWork count_work(const BertOptions& options, std::int64_t tokens, std::int64_t predictions);

}  // namespace holdfast::inline v1
