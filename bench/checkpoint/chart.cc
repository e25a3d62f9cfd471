// The chart: one group of bars per state, one bar per way to make it durable; its length is the share of the
// ceiling.
#include "holdfast/cli/report/chart.h"

#include "report.h"
#include "statistics.h"

namespace holdfast::bench {
namespace {

Bar bar_of(const Row& row) {
  const char* classes = "second-fill";
  if (row.key == "durable.holdfast") classes = "first-fill";
  if (row.key == "durable.ceiling") classes = "startup-fill";
  return {.name = row.what,
          .length = row.ratio,
          .value = fixed(row.ratio, 2) + "  " + row.text.substr(0, row.text.find(',')),
          .classes = classes};
}

}  // namespace

void Report::write_chart(const std::filesystem::path& file) const {
  BarChart chart{.title = "Durable write of a training state, as share of a raw O_DIRECT write",
                 .subtitle = machine_.one_line(),
                 .nothing = "No durable write was measured in this run."};
  for (const Section& section : sections_) {
    BarGroup group{.title = section.title};
    for (const Row& row : section.rows) {
      if (row.key.starts_with("durable.")) group.bars.push_back(bar_of(row));
    }
    if (!group.bars.empty()) chart.groups.push_back(std::move(group));
  }
  write_text(file, bar_chart(chart).document());
}

}  // namespace holdfast::bench
