// The rows of the published table: models, and the batches that its harnesses use. Also rows beside the
// table, which are measured only if they are named.
//
// CNNs: github.com/lambdal/lambda-tensorflow-benchmark, config/bs_fp32.sh and bs_fp16.sh, which call
// tf_cnn_benchmarks. BERT: github.com/NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT, the
// pre-training tables of its README (DGX-1 with 32 GB, DGX A100 with 40 GB).
//
// Errors: UsageError for a model that is not in the table. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Kind {
  std::string name;   // "resnet50", "ssd300", "bert-128"
  std::string unit;   // "images" or "sequences": the unit of a batch
  bool has_layouts;   // has convolutions: NCHW and NHWC are two rows
  bool has_norms;     // has batch norms: --bn applies, and a batch needs two samples
  double parameters;  // of the variant torchvision; those of `table` differ by a percent
  double slots;       // slots per parameter: SGD 1, LAMB 2
  std::int64_t full_32,
      half_32;  // samples of a forward pass on one GPU of 32 GB: FP32 and TF32; FP16 and BF16
  std::int64_t full_40, half_40;  // the same for 40 GB
  std::int64_t global = 0;        // samples of one update over all GPUs, by accumulation; 0: none
  bool in_table = true;           // false: a row beside the table, with the batches of its table row
};

const std::vector<Kind>& kinds();
const Kind& kind_of(const std::string& model);

// Samples of a forward pass: the harness's times `scale`, at least 2 with batch norms, otherwise 1.
std::int64_t batch_of(const std::string& model, const std::string& precision, int memory, double scale);

// An update of the table's global batch, by accumulation.
struct Update {
  std::int64_t batch = 0;         // samples of a forward pass
  std::int64_t accumulation = 0;  // forward passes
};
// Divides `global` samples into passes of at most `most`: as few as possible, but at least kLeastPasses, so
// that the update's own time has the same weight as in the table. All passes have equal size, so a few
// samples may be added.
Update update_of(std::int64_t global, std::int64_t most);
constexpr std::int64_t kLeastPasses = 16;

}  // namespace holdfast::bench
