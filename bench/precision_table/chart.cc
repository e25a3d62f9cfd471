#include "holdfast/cli/report/chart.h"

#include <algorithm>
#include <cstdio>

#include "output.h"

namespace holdfast::bench {
namespace {

const char* color_of(const std::string& precision) {
  return precision == "fp16" ? "first-fill" : precision == "bf16" ? "third-fill" : "startup-fill";
}

std::string speed_text(double per_second) {
  char value[64];
  std::snprintf(value, sizeof value, per_second < 100 ? "%.1f" : "%.0f", per_second);
  return value;
}

BarGroup group_of(const Table& table, const std::string& model) {
  BarGroup group{.title = model + " (" + table.heading.variant + ")"};
  double longest = 0;
  const auto add = [&](const std::string& name, double per_second, const char* classes) {
    longest = std::max(longest, per_second);
    group.bars.push_back(
        {.name = name, .length = per_second, .value = speed_text(per_second), .classes = classes});
  };
  for (const Row& row : table.rows) {
    if (row.cell.model != model || !row.measured()) continue;
    const std::string layout = row.cell.layout == kNoLayout ? "" : " " + row.cell.layout;
    const std::string times = row.cell.accumulation == 1 ? "" : " x " + std::to_string(row.cell.accumulation);
    add(row.cell.precision + layout + " " + row.cell.mode + ", batch " + std::to_string(row.cell.batch) +
            times,
        row.samples_per_second(), color_of(row.cell.precision));
  }
  for (const Published& one : table.published) {
    if (one.model != model) continue;
    // Of several figures the one that stands beside ours.
    if (beside(table.published, model, one.device, one.precision)->samples_per_second !=
        one.samples_per_second)
      continue;
    add("published: " + one.device + " " + one.precision, one.of_one_gpu(), "second-fill");
  }
  if (longest > 0) group.full = longest;
  return group;
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
  BarChart chart{.title = "Training, samples per second of one device (" + table.heading.variant + ")",
                 .subtitle = table.heading.device + "; " + table.heading.how,
                 .nothing = "nothing was measured"};
  std::vector<std::string> models;
  for (const Row& row : table.rows) {
    if (std::find(models.begin(), models.end(), row.cell.model) != models.end()) continue;
    models.push_back(row.cell.model);
    chart.groups.push_back(group_of(table, row.cell.model));
  }
  if (!table.published.empty()) {
    chart.footer = "published: " + sources_of(table) + "; divided by the number of GPUs";
  }
  return bar_chart(chart).document();
}

}  // namespace holdfast::bench
