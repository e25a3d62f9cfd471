// The table: its cells and results. It uses texts instead of torch's types, so that evaluating a finished
// table does not need torch.
//
// Errors: UsageError for a model that is not in the table. Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace holdfast::bench {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestLossDifference = 1e-4;  // of first FP32 losses, relative
constexpr char kNoLayout[] = "-";                // for models without convolutions
constexpr char kGlobal[] = "global";             // names rows with a global batch

// One combination.
struct Cell {
  std::string model;              // "resnet50", "bert-128"
  std::string precision;          // "fp32", "tf32", "fp16", "bf16"
  std::string layout;             // "nchw", "nhwc", kNoLayout
  std::string mode;               // "eager", "graph"
  std::int64_t batch = 0;         // samples of one forward pass
  std::int64_t accumulation = 1;  // forward passes of one update
  std::int64_t global = 0;        // samples of one update, whatever a pass has; 0: unspecified
};
// "resnet50/fp16/nhwc/graph", "bert-512/fp32/eager/x16", "bert-512/fp32/eager/global". Unique in a table.
std::string name_of(const Cell& cell);

// The same model in Python, measured in turns with ours, window by window.
struct PeerFigure {
  std::string name;                             // "eager", "compile"
  std::string why = {};                         // the reason if it was left out
  std::vector<double> seconds = {};             // of a step, one per window
  double first_loss_difference = kNotMeasured;  // |theirs - ours| / |ours| before the first update

  bool measured() const { return why.empty() && !seconds.empty(); }
};

struct Row {
  Cell cell = {};
  std::string unit = "images";
  std::int64_t size = 0;               // side of the pictures in pixels, or length of the sequences
  std::string bn = {};                 // implementation of the batch norms; empty: none, or not started
  std::string why = {};                // the reason if it was not measured
  std::string note = {};               // remarks about the figure
  std::vector<double> seconds = {};    // of a step from forward to update, one per window
  double train_flops = kNotMeasured;   // of one sample
  double peak_tflops = kNotMeasured;   // of the device in this precision; NaN if unknown
  double first_loss = kNotMeasured;    // before the first update
  double loss = kNotMeasured;          // after the last step
  bool counts_for_ratios = true;       // false: a graph row that was measured without a graph
  double needed_bytes = kNotMeasured;  // of a row that does not fit: an estimate
  std::int64_t batch_that_fits = 0;    // of such a row; 0: none fits
  std::vector<PeerFigure> peers = {};

  bool measured() const { return why.empty() && !seconds.empty(); }
  double seconds_per_step() const;  // the median; NaN if not measured, as are all below
  double samples_per_second() const;
  double tflops() const;       // floating-point operations that the model needs
  double utilisation() const;  // share of the peak
  // In FP32 both compute the same, so their first losses must agree.
  bool disagrees_with(const PeerFigure& peer) const;
  // Our steps per step of the peer: the median over the windows.
  double times_as_fast_as(const PeerFigure& peer) const;
};

struct Choice {
  std::vector<std::string> rows;  // words of name_of(), joined by /: "resnet50/fp16"; empty: all
  std::vector<std::string> models, precisions, layouts, modes;
  std::vector<std::int64_t> accumulations = {1, 16};  // for models that the table trains with accumulation
  int memory = 40;                                    // GB of the GPU of the published batch sizes: 32 or 40
  double scale = 1;                                   // factor of the batch sizes and of the global batches
  std::int64_t micro_batch = 0;                       // samples of every row's forward pass; 0: the table's
};

// All combinations, in the order of the lists. Rows beside the table (other models, global batches) are
// included only if Choice::rows or Choice::models names them: "inception3-aux", "global". UsageError if an
// element of Choice::rows matches nothing.
std::vector<Cell> planned(const Choice& choice);

// The rows of the published table, each model once in FP16 and once in TF32 (`gpu` false: FP32), each as the
// table was measured, and in the mode that is fastest on the device.
std::vector<std::string> default_rows(bool gpu);

constexpr char kNotAskedFor[] = "was not asked for";  // last words of Ratio::why

// Gain of FP16 over `base` ("tf32"; "fp32" on devices without TF32), in one mode.
struct Ratio {
  std::string model;
  std::string mode;
  std::int64_t accumulation = 1;
  std::int64_t global = 0;  // as in Cell; then accumulations may differ
  std::string base;
  double table_style = kNotMeasured;  // FP16 NHWC over the base in NCHW, as the published table compares
  std::string norms = {};             // what else differs there: "aten norms against fused"; empty: nothing
  double fair = kNotMeasured;         // each in its best layout; NaN unless each was measured in both
  std::string why = {};               // the reason if nothing could be compared
};
std::vector<Ratio> ratios_of(const std::vector<Row>& rows, const std::string& base);

}  // namespace holdfast::bench
