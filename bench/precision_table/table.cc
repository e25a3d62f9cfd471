#include "table.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "../shared/median.h"
#include "catalogue.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

bool same_group(const Ratio& of, const Cell& cell) {
  return of.model == cell.model && of.mode == cell.mode && of.global == cell.global &&
         (of.global != 0 || of.accumulation == cell.accumulation);
}

// The quickest of those that fit; nullptr: none was measured.
const Row* best(const std::vector<Row>& rows, const Ratio& of, const std::string& precision,
                const std::string& layout) {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    const bool fits = row.cell.layout == layout || row.cell.layout == kNoLayout;
    if (!row.measured() || !row.counts_for_ratios || !same_group(of, row.cell) ||
        row.cell.precision != precision || !fits) {
      continue;
    }
    if (best == nullptr || best->samples_per_second() < row.samples_per_second()) best = &row;
  }
  return best;
}

double rate_of(const Row* row) { return row != nullptr ? row->samples_per_second() : kNotMeasured; }

// In the better layout; NaN: not both were measured.
double best_of_layouts(const std::vector<Row>& rows, const Ratio& of, const std::string& precision) {
  const double nhwc = rate_of(best(rows, of, precision, "nhwc"));
  const double nchw = rate_of(best(rows, of, precision, "nchw"));
  return std::isnan(nhwc) || std::isnan(nchw) ? kNotMeasured : std::max(nhwc, nchw);
}

std::string why_not(const std::vector<Row>& rows, const Ratio& of, const std::string& precision) {
  std::string why = precision + " " + kNotAskedFor;
  for (const Row& row : rows) {
    if (!same_group(of, row.cell) || row.cell.precision != precision) continue;
    if (row.measured()) return "";
    why = row.why;
  }
  return why;
}

using Words = std::vector<std::string>;
bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Words words_of(const std::string& name) {
  Words words;
  std::istringstream in(name);
  for (std::string word; std::getline(in, word, '/');) words.push_back(word);
  return words;
}

// Are all its words the cell's? "bert" is both of them. What is beside the table has to be named.
bool chosen_by(const std::string& row, const Cell& cell, const Choice& choice) {
  const Words words = words_of(row);
  const Words of_cell = words_of(name_of(cell));
  const auto known = [&](const std::string& word) {
    return has(of_cell, word) || (word == "bert" && cell.model.starts_with("bert"));
  };
  return !words.empty() && std::all_of(words.begin(), words.end(), known) &&
         (cell.global == 0 || has(words, kGlobal)) &&
         (has(choice.models, cell.model) || has(words, cell.model));
}

bool any_row_has(const std::string& word, const Choice& choice) {
  return std::any_of(choice.rows.begin(), choice.rows.end(),
                     [&](const std::string& row) { return has(words_of(row), word); });
}

Words models_of(const Choice& choice) {
  Words models = choice.models;
  for (const Kind& kind : kinds()) {
    if (!kind.in_table && !has(models, kind.name) && any_row_has(kind.name, choice))
      models.push_back(kind.name);
  }
  return models;
}

// The cell's batches: x1, x16, and by the global batch.
std::vector<Cell> batches_of(Cell cell, const Choice& choice) {
  const Kind& kind = kind_of(cell.model);
  const auto pass = [&](double scale) {
    const std::int64_t tables = batch_of(cell.model, cell.precision, choice.memory, scale);
    return choice.micro_batch == 0 ? tables
                                   : std::max<std::int64_t>(kind.has_layouts ? 2 : 1, choice.micro_batch);
  };
  cell.batch = pass(choice.scale);
  if (kind.global == 0) return {cell};
  std::vector<Cell> cells;
  for (const std::int64_t accumulation : choice.accumulations) {
    cell.accumulation = accumulation;
    cells.push_back(cell);
  }
  if (!any_row_has(kGlobal, choice)) return cells;
  cell.global = std::max<std::int64_t>(1, std::llround(static_cast<double>(kind.global) * choice.scale));
  const Update update = update_of(cell.global, pass(1));
  cell.batch = update.batch;
  cell.accumulation = update.accumulation;
  cells.push_back(cell);
  return cells;
}

std::vector<Cell> all_cells(const Choice& choice) {
  std::vector<Cell> cells;
  for (const std::string& model : models_of(choice)) {
    for (const std::string& precision : choice.precisions) {
      for (const std::string& layout :
           kind_of(model).has_layouts ? choice.layouts : std::vector<std::string>{kNoLayout}) {
        for (const std::string& mode : choice.modes) {
          const auto some =
              batches_of({.model = model, .precision = precision, .layout = layout, .mode = mode}, choice);
          cells.insert(cells.end(), some.begin(), some.end());
        }
      }
    }
  }
  return cells;
}

}  // namespace

std::string name_of(const Cell& cell) {
  std::string name = cell.model + "/" + cell.precision;
  if (cell.layout != kNoLayout) name += "/" + cell.layout;
  name += "/" + cell.mode;
  if (cell.layout != kNoLayout) return name;
  return name + "/" + (cell.global != 0 ? std::string(kGlobal) : "x" + std::to_string(cell.accumulation));
}

double Row::seconds_per_step() const { return measured() ? median(seconds) : kNotMeasured; }

double Row::samples_per_second() const {
  return static_cast<double>(cell.batch * cell.accumulation) / seconds_per_step();
}

double Row::tflops() const { return samples_per_second() * train_flops / 1e12; }

double Row::utilisation() const { return tflops() / peak_tflops; }

bool Row::disagrees_with(const PeerFigure& peer) const {
  if (cell.precision != "fp32" || !(peer.measured() || std::isfinite(peer.first_loss_difference)))
    return false;
  return !(peer.first_loss_difference <= kLargestLossDifference);  // nor is a loss that is no number
}

double Row::times_as_fast_as(const PeerFigure& peer) const {
  if (!measured() || !peer.measured() || seconds.size() != peer.seconds.size()) return kNotMeasured;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < seconds.size(); ++i) ratios.push_back(peer.seconds[i] / seconds[i]);
  return median(ratios);
}

std::vector<std::string> default_rows(bool gpu) {
  const std::string full = gpu ? "tf32/" : "fp32/", mode = gpu ? "graph" : "eager";
  std::vector<std::string> rows;
  for (const Kind& kind : kinds()) {
    if (!kind.in_table) continue;
    rows.push_back(kind.name + "/fp16/" + (kind.has_layouts ? "nhwc/" + mode : mode + "/x16"));
    rows.push_back(kind.name + "/" + full + (kind.has_layouts ? "nchw/" + mode : mode + "/x16"));
  }
  return rows;
}

std::vector<Cell> planned(const Choice& choice) {
  const std::vector<Cell> all = all_cells(choice);
  if (choice.rows.empty()) return all;
  for (const std::string& row : choice.rows) {
    const auto chosen = [&](const Cell& cell) { return chosen_by(row, cell, choice); };
    if (std::any_of(all.begin(), all.end(), chosen)) continue;
    throw UsageError("--rows: there is no row '" + row +
                     "': give words of a row's name, joined by /, such as resnet50/fp16/nhwc or fp32/eager");
  }
  std::vector<Cell> cells;
  for (const Cell& cell : all) {
    const auto chooses = [&](const std::string& row) { return chosen_by(row, cell, choice); };
    if (std::any_of(choice.rows.begin(), choice.rows.end(), chooses)) cells.push_back(cell);
  }
  return cells;
}

std::vector<Ratio> ratios_of(const std::vector<Row>& rows, const std::string& base) {
  std::vector<Ratio> ratios;
  for (const Row& row : rows) {
    const auto known = [&](const Ratio& one) { return same_group(one, row.cell); };
    if (std::any_of(ratios.begin(), ratios.end(), known)) continue;
    Ratio ratio{.model = row.cell.model,
                .mode = row.cell.mode,
                .accumulation = row.cell.accumulation,
                .global = row.cell.global,
                .base = base};
    const Row* const fp16 = best(rows, ratio, "fp16", "nhwc");
    const Row* const other = best(rows, ratio, base, "nchw");
    ratio.table_style = rate_of(fp16) / rate_of(other);
    if (fp16 != nullptr && other != nullptr && fp16->bn != other->bn) {
      ratio.norms = other->bn + " norms against " + fp16->bn;
    }
    ratio.fair = best_of_layouts(rows, ratio, "fp16") / best_of_layouts(rows, ratio, base);
    if (std::isnan(ratio.table_style) && std::isnan(ratio.fair)) {
      ratio.why = why_not(rows, ratio, base);
      if (ratio.why.empty()) ratio.why = why_not(rows, ratio, "fp16");
      if (ratio.why.empty()) ratio.why = "no graph could be captured";
    }
    ratios.push_back(std::move(ratio));
  }
  return ratios;
}

}  // namespace holdfast::bench
