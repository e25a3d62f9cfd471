// The chart: one group of bars per state, one bar per way to make it durable; its length is the share of the
// ceiling.
#include <algorithm>
#include <string>
#include <vector>

#include "holdfast/cli/svg_text.h"
#include "report.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

constexpr int kWidth = 860;
constexpr int kBarsAt = 300;  // where the bars begin; names stand to the left
constexpr int kFull = 460;    // the length of the ceiling
constexpr int kLine = 26;

std::string bar(int y, const Row& row) {
  const double share = std::clamp(row.ratio, 0.0, 1.2);
  const bool ours = row.key == "durable.holdfast";
  const bool ceiling = row.key == "durable.ceiling";
  const char* color = ceiling ? "#b8bec8" : ours ? "#1668b8" : "#c9904a";
  std::string out = svg_text(kBarsAt - 10, y + 15, "text-anchor=\"end\"", row.what);
  out += "<rect x=\"" + std::to_string(kBarsAt) + "\" y=\"" + std::to_string(y) + "\" width=\"" +
         fixed(share * kFull, 1) + "\" height=\"20\" rx=\"2\" fill=\"" + color + "\"/>\n";
  return out + svg_text(kBarsAt + static_cast<int>(share * kFull) + 8, y + 15, "",
                        fixed(row.ratio, 2) + "  " + row.text.substr(0, row.text.find(',')));
}

}  // namespace

void Report::write_chart(const std::filesystem::path& file) const {
  std::string body = svg_text(20, 30, "font-size=\"18\" font-weight=\"bold\"",
                              "Durable write of a training state, as share of a raw O_DIRECT write");
  body += svg_text(20, 52, "fill=\"#555\"", machine_.one_line());
  int y = 66;
  bool any = false;
  for (const Section& section : sections_) {
    std::vector<const Row*> rows;
    for (const Row& row : section.rows) {
      if (row.key.starts_with("durable.")) rows.push_back(&row);
    }
    if (rows.empty()) continue;
    any = true;
    body += svg_text(20, y + 24, "font-weight=\"bold\"", section.title);
    y += 38;
    for (const Row* row : rows) {
      body += bar(y, *row);
      y += kLine;
    }
    y += 8;
  }
  if (!any) body += svg_text(20, y + 24, "", "No durable write was measured in this run.");
  y += 40;
  const std::string size = "width=\"" + std::to_string(kWidth) + "\" height=\"" + std::to_string(y) + "\"";
  write_text(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
                       " font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
                       "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
                       body + "</svg>\n");
}

}  // namespace holdfast::bench
