// The rows of the published table: which models, and which batches its harnesses give them; and rows beside
// it, of the same models otherwise, that are measured when they are asked for by name.
//
// CNNs: github.com/lambdal/lambda-tensorflow-benchmark, config/bs_fp32.sh and bs_fp16.sh, which call
// tf_cnn_benchmarks. BERT: github.com/NVIDIA/DeepLearningExamples, TensorFlow/LanguageModeling/BERT, the
// pre-training tables of its README: DGX-1 with 32 GB, DGX A100 with 40 GB.
//
// Errors: UsageError for a model that is not in the table. Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Kind {
  std::string name;   // "resnet50", "ssd300", "bert-128"
  std::string unit;   // what a batch is of: "images" or "sequences"
  bool has_layouts;   // it convolves: NCHW and NHWC are two rows
  bool has_norms;     // batch norms: --bn can choose, and a batch needs two samples
  double parameters;  // of the variant torchvision; those of `table` differ by a percent
  double slots;       // tensors of its optimizer for a parameter: SGD 1, LAMB 2
  std::int64_t full_32,
      half_32;  // samples of a forward pass on one GPU of 32 GB: FP32 and TF32; FP16 and BF16
  std::int64_t full_40, half_40;  // of 40 GB
  std::int64_t global = 0;        // samples of one update over all GPUs, by accumulation; 0: there is none
  bool in_table = true;           // false: a row beside it, with the batches of the row that it is beside
};

const std::vector<Kind>& kinds();
const Kind& kind_of(const std::string& model);

// Samples of a forward pass: the harness' times `scale`, at least 2 where a batch norm needs two, else 1.
std::int64_t batch_of(const std::string& model, const std::string& precision, int memory, double scale);

// An update of the table's global batch by accumulation.
struct Update {
  std::int64_t batch = 0;         // samples of a forward pass
  std::int64_t accumulation = 0;  // forward passes
};
// `global` samples in passes of at most `most`: as few as can be, but at least kLeastPasses, so that the
// update's own time is spread as in the table; all of the same size, so that a few samples may come on top.
Update update_of(std::int64_t global, std::int64_t most);
constexpr std::int64_t kLeastPasses = 16;

}  // namespace holdfast::bench
