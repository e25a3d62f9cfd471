// The table: what is to be measured, and what came out. Words, not types of Torch: the arithmetic on a
// finished table needs none.
//
// Errors: UsageError for a model that is not in the table. Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace holdfast::bench {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
constexpr double kLargestLossDifference = 1e-4;  // of first losses in FP32, relative
constexpr char kNoLayout[] = "-";                // of a model that does not convolve
constexpr char kGlobal[] = "global";             // the word of rows by a global batch

// One combination.
struct Cell {
  std::string model;              // "resnet50", "bert-128"
  std::string precision;          // "fp32", "tf32", "fp16", "bf16"
  std::string layout;             // "nchw", "nhwc", kNoLayout
  std::string mode;               // "eager", "graph"
  std::int64_t batch = 0;         // samples of a forward pass
  std::int64_t accumulation = 1;  // forward passes of an update
  std::int64_t global = 0;  // samples that an update is to see, whatever a pass holds; 0: it is not said
};
// "resnet50/fp16/nhwc/graph", "bert-512/fp32/eager/x16", "bert-512/fp32/eager/global". In one table no two
// have the same.
std::string name_of(const Cell& cell);

// The same model in Python, which took turns with ours, window by window.
struct PeerFigure {
  std::string name;                             // "eager", "compile"
  std::string why = {};                         // it was left out; empty: it was not
  std::vector<double> seconds = {};             // of a step, one a window
  double first_loss_difference = kNotMeasured;  // |theirs - ours| / |ours| before the first update

  bool measured() const { return why.empty() && !seconds.empty(); }
};

struct Row {
  Cell cell = {};
  std::string unit = "images";
  std::int64_t size = 0;  // the pictures' side in pixels, or the sequences' length
  std::string bn = {};    // who computes the batch norms; empty: there are none, or it was not begun
  std::string why = {};   // it was not measured; empty: it was
  std::string note = {};  // what else is to be known of the figure
  std::vector<double> seconds = {};    // of a step, forward passes to update, one a window
  double train_flops = kNotMeasured;   // of one sample
  double peak_tflops = kNotMeasured;   // of the device in this precision; not known: NaN
  double first_loss = kNotMeasured;    // before the first update
  double loss = kNotMeasured;          // after the last step
  bool counts_for_ratios = true;       // false: a graph that was measured eagerly
  double needed_bytes = kNotMeasured;  // of a row that does not fit: an estimate
  std::int64_t batch_that_fits = 0;    // of such a row; 0: none does
  std::vector<PeerFigure> peers = {};

  bool measured() const { return why.empty() && !seconds.empty(); }
  double seconds_per_step() const;  // the median; NaN where nothing was measured, as all below
  double samples_per_second() const;
  double tflops() const;       // of the model: additions and multiplications that it needs
  double utilisation() const;  // share of the peak
  // In FP32 both compute the same: their first losses must agree.
  bool disagrees_with(const PeerFigure& peer) const;
  // How many steps ours makes while the peer makes one: the median over the windows, which took turns.
  double times_as_fast_as(const PeerFigure& peer) const;
};

struct Choice {
  std::vector<std::string> rows;  // of words of name_of(), joined by /: "resnet50/fp16"; empty: all
  std::vector<std::string> models, precisions, layouts, modes;
  std::vector<std::int64_t> accumulations = {1, 16};  // of models that the table trains so
  int memory = 40;               // GB of the GPU that the published batch sizes were for: 32 or 40
  double scale = 1;              // of the batch sizes, and of the global batches
  std::int64_t micro_batch = 0;  // samples of every row's forward pass; 0: the table's
};

// All combinations, in the order of the lists. What is beside the table, other models and rows by a global
// batch, is there only where a word of Choice::rows or Choice::models is its own: "inception3-aux", "global".
// UsageError where one of Choice::rows is none of them.
std::vector<Cell> planned(const Choice& choice);

constexpr char kNotAskedFor[] = "was not asked for";  // the end of Ratio::why

// What FP16 gains over `base` ("tf32"; "fp32" on what has no TF32), in one mode.
struct Ratio {
  std::string model;
  std::string mode;
  std::int64_t accumulation = 1;
  std::int64_t global = 0;  // as Cell has it: then accumulations may differ
  std::string base;
  double table_style = kNotMeasured;  // FP16 NHWC over the base in NCHW, as the published table compares
  double fair = kNotMeasured;         // both in the layout that is best for them
  std::string why = {};               // nothing could be compared
};
std::vector<Ratio> ratios_of(const std::vector<Row>& rows, const std::string& base);

}  // namespace holdfast::bench
