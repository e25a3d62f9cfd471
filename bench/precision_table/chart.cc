#include <algorithm>
#include <cmath>
#include <cstdio>

#include "holdfast/cli/svg_text.h"
#include "output.h"

namespace holdfast::bench {
namespace {

constexpr int kWidth = 860;
constexpr int kBarsAt = 300;  // where the bars begin; names stand to the left
constexpr int kFull = 420;    // the longest of a group
constexpr int kLine = 24;

struct Bar {
  std::string name;
  double per_second;
  const char* color;
};

const char* color_of(const std::string& precision) {
  return precision == "fp16" ? "#1668b8" : precision == "bf16" ? "#4a9bd9" : "#8fc1e3";
}

std::vector<Bar> bars_of(const Table& table, const std::string& model) {
  std::vector<Bar> bars;
  for (const Row& row : table.rows) {
    if (row.cell.model != model || !row.measured()) continue;
    const std::string layout = row.cell.layout == kNoLayout ? "" : " " + row.cell.layout;
    const std::string times = row.cell.accumulation == 1 ? "" : " x " + std::to_string(row.cell.accumulation);
    bars.push_back({row.cell.precision + layout + " " + row.cell.mode + ", batch " +
                        std::to_string(row.cell.batch) + times,
                    row.samples_per_second(), color_of(row.cell.precision)});
  }
  for (const Published& one : table.published) {
    if (one.model == model) {
      bars.push_back({"published: " + one.device + " " + one.precision, one.of_one_gpu(), "#c9904a"});
    }
  }
  return bars;
}

std::string drawn(const Bar& bar, double longest, int y) {
  const int length = static_cast<int>(std::lround(bar.per_second / longest * kFull));
  char value[64];
  std::snprintf(value, sizeof value, bar.per_second < 100 ? "%.1f" : "%.0f", bar.per_second);
  return svg_text(kBarsAt - 10, y + 14, "text-anchor=\"end\"", bar.name) + "<rect x=\"" +
         std::to_string(kBarsAt) + "\" y=\"" + std::to_string(y) + "\" width=\"" + std::to_string(length) +
         "\" height=\"18\" rx=\"2\" fill=\"" + bar.color + "\"/>\n" +
         svg_text(kBarsAt + length + 8, y + 14, "", value);
}

std::string sources_of(const Table& table) {
  std::vector<std::string> sources;
  std::string text;
  for (const Published& one : table.published) {
    const std::string source = one.source.substr(0, one.source.find(','));
    if (std::find(sources.begin(), sources.end(), source) != sources.end()) continue;
    sources.push_back(source);
    text += (text.empty() ? "" : ", ") + source;
  }
  return text;
}

}  // namespace

std::string chart_of(const Table& table) {
  std::string body = svg_text(20, 30, "font-size=\"18\" font-weight=\"bold\"",
                              "Training, samples per second of one device (" + table.heading.variant + ")");
  body += svg_text(20, 52, "fill=\"#555\"", table.heading.device + "; " + table.heading.how);
  std::vector<std::string> models;
  for (const Row& row : table.rows) {
    if (std::find(models.begin(), models.end(), row.cell.model) == models.end()) {
      models.push_back(row.cell.model);
    }
  }
  int y = 66;
  for (const std::string& model : models) {
    const std::vector<Bar> bars = bars_of(table, model);
    double longest = 0;
    for (const Bar& bar : bars) longest = std::max(longest, bar.per_second);
    body += svg_text(20, y + 24, "font-weight=\"bold\"", model + " (" + table.heading.variant + ")");
    y += 36;
    if (longest == 0) {
      body += svg_text(kBarsAt, y + 14, "fill=\"#555\"", "nothing was measured");
      y += kLine;
    }
    for (const Bar& bar : bars) {
      body += drawn(bar, longest, y);
      y += kLine;
    }
  }
  if (!table.published.empty()) {
    body += svg_text(20, y + 28, "fill=\"#555\"",
                     "published: " + sources_of(table) + "; divided by the number of GPUs");
    y += 28;
  }
  y += 24;
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + std::to_string(kWidth) + "\" height=\"" +
         std::to_string(y) + "\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n" +
         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" + body + "</svg>\n";
}

}  // namespace holdfast::bench
