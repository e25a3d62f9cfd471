// The table: what is to be measured, and what came out. Words, not types of Torch: the arithmetic on a
// finished table needs none.
//
// Errors: UsageError for a model without published batch sizes. Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace holdfast::bench {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// One combination.
struct Cell {
  std::string model;      // "resnet50"
  std::string precision;  // "fp32", "tf32", "fp16", "bf16"
  std::string layout;     // "nchw", "nhwc"
  std::string mode;       // "eager", "graph"
  std::int64_t batch = 0;
};

struct Row {
  Cell cell = {};
  std::int64_t pixels = 0;
  std::string why = {};               // it was not measured; empty: it was
  std::string note = {};              // what else is to be known of the figure
  std::vector<double> seconds = {};   // of a step, one a window
  double train_flops = kNotMeasured;  // of one picture
  double peak_tflops = kNotMeasured;  // of the device in this precision; not known: NaN
  double loss = kNotMeasured;         // after the last step
  bool counts_for_ratios = true;      // false: a graph that was measured eagerly

  bool measured() const { return why.empty() && !seconds.empty(); }
  double seconds_per_step() const;  // the median; NaN where nothing was measured, as all below
  double images_per_second() const;
  double tflops() const;       // of the model: additions and multiplications that it needs
  double utilisation() const;  // share of the peak
};

struct Choice {
  std::vector<std::string> models, precisions, layouts, modes;
  int memory = 40;   // GB of the GPU that the published batch sizes were for: 32 or 40
  double scale = 1;  // of the batch sizes
};

// Batch sizes of the published table's harness for one GPU, times `scale`, at least 2 (a batch norm needs
// two). fp16 and bf16 take twice as much as fp32 and tf32.
std::int64_t batch_of(const std::string& model, const std::string& precision, int memory, double scale);
// All combinations, in the order of the lists.
std::vector<Cell> planned(const Choice& choice);

// What FP16 gains over `base` ("tf32"; "fp32" on what has no TF32), in one mode.
struct Ratio {
  std::string model;
  std::string mode;
  std::string base;
  double table_style = kNotMeasured;  // FP16 NHWC over the base in NCHW, as the published table compares
  double fair = kNotMeasured;         // both in the layout that is best for them
  std::string why = {};               // nothing could be compared
};
std::vector<Ratio> ratios_of(const std::vector<Row>& rows, const std::string& base);

}  // namespace holdfast::bench
