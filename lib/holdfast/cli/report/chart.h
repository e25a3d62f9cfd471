// Charts: curves over steps, and bars.
//
//   Curve loss("training", 1, 1'000'000);
//   for (…) loss.add(step, value);
//   picture = line_chart({.curves = {loss}, .cuts = {{500, "attempt 2"}}, .x_label = "step"});
//
// A curve keeps kColumns columns, whatever the number of its points: the mean as a line, and the range from
// minimum to maximum as a band, so that no spike is lost. It takes at most 20 kB of a picture.
// Errors: none. Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/cli/report/svg.h"

namespace holdfast { inline namespace v0_2 {

class Curve {
 public:
  static constexpr std::size_t kColumns = 400;

  // Points have x from `first` to `last`.
  Curve(std::string name, double first, double last);

  // A value that is not finite interrupts the line.
  void add(double x, double y);
  const std::string& name() const { return name_; }
  void rename(std::string name) { name_ = std::move(name); }
  bool empty() const { return points_ == 0; }

  struct Column {
    double x = 0;  // mean
    double sum = 0;
    double min = 0;
    double max = 0;
    std::int64_t count = 0;  // finite values
    bool broken = false;     // others
    double mean() const { return sum / static_cast<double>(count); }
  };
  const std::vector<Column>& columns() const { return columns_; }

 private:
  std::string name_;
  double first_;
  double width_;  // of a column
  std::int64_t points_ = 0;
  std::vector<Column> columns_;
};

// A vertical line: the run was interrupted here.
struct Cut {
  double x = 0;
  std::string label;
};

struct LineChart {
  // Up to three with their bands; more have lines alone. Colours repeat after six, then dashed.
  std::vector<Curve> curves;
  std::vector<Cut> cuts;
  double first = 0;  // the range of x
  double last = 1;
  std::string x_label;
  bool may_be_logarithmic = false;  // y, if the values span more than a factor of 30
  bool from_zero = false;
  bool percent = false;  // values from 0 to 1 are written as percent
};
SvgPicture line_chart(const LineChart& chart);

struct Bar {
  std::string name;
  double length = 0;    // in the chart's unit
  std::string value;    // text behind the bar
  std::string classes;  // its colour, of svg_style()
};
struct BarGroup {
  std::string title;
  std::vector<Bar> bars;
  double full = 1;  // a bar of this length fills the chart
};
struct BarChart {
  std::string title;
  std::string subtitle;
  std::vector<BarGroup> groups;
  std::string nothing;  // shown without groups, and for a group without bars
  std::string footer;
};
SvgPicture bar_chart(const BarChart& chart);

}}  // namespace holdfast::v0_2
