#include "holdfast/cli/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kWidth = 900;
constexpr int kHeight = 270;
constexpr double kLeft = 62;
constexpr double kRight = kWidth - 16;
constexpr double kTop = 34;
constexpr double kBottom = kHeight - 40;
constexpr double kSpan = 30;                 // a wider one is drawn logarithmically
constexpr std::size_t kMostLabels = 8;       // of cuts
constexpr double kLabelRoom = 66;            // pixels
constexpr std::size_t kMostPointMarks = 40;  // a curve with more points needs no dots
constexpr std::array<const char*, 6> kStrokes{"first", "second", "third", "fourth", "fifth", "sixth"};
constexpr std::size_t kMostBands = 3;  // more would hide each other
constexpr double kLegendLine = 18;

// 1, 2 or 5 times a power of ten.
double nice_step(double raw) {
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double part = raw / power;
  // The limits are the middles of 1 and 2, 2 and 5, 5 and 10.
  return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

std::vector<double> linear_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  const double step = nice_step((high - low) / wanted);
  if (!(step > 0) || !std::isfinite(step)) return ticks;
  // Bounded, because a step below the precision of `low` would never come to `high`.
  for (int i = 0; i < 50; ++i) {
    // A little below `low`, so that rounding does not lose a tick at the edge.
    const double tick = (std::ceil(low / step - 1e-9) + i) * step;
    if (tick > high + step * 1e-6) break;
    // Zero prints as 0 and not as 1e-17.
    ticks.push_back(std::fabs(tick) < step * 1e-9 ? 0 : tick);
  }
  return ticks;
}

// Ticks of log10: 1, 2 and 5 of each decade; only the 1 where that would be many.
std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> ticks;
  const int every = std::max(1, static_cast<int>(std::ceil((high - low) / 6)));
  for (int decade = static_cast<int>(std::floor(low)); decade <= high; ++decade) {
    if (decade % every != 0) continue;
    for (const double part : {1.0, 2.0, 5.0}) {
      const double tick = decade + std::log10(part);
      if (tick >= low && tick <= high && (part == 1 || high - low <= 2.5)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string tick_text(double value, bool percent) {
  if (percent) return format_number(value * 100) + " %";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size >= 1e-4 && size < 1e9) {
    std::array<char, 32> text{};
    if (size >= 1000 && value == std::round(value)) return format_count(static_cast<std::int64_t>(value));
    std::snprintf(text.data(), text.size(), "%.6g", value);
    return text.data();
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2g", value);
  return text.data();
}

std::string step_text(double value) {
  if (std::fabs(value) >= 1e6) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4gM", value / 1e6);
    return text.data();
  }
  return tick_text(value, false);
}

std::string color_of(std::size_t index) { return kStrokes[index % kStrokes.size()]; }
std::string stroke_of(std::size_t index) {
  return color_of(index) + (index / kStrokes.size() % 2 == 1 ? " dashed" : "");
}

// Places values in the chart.
class Plot {
 public:
  explicit Plot(const LineChart& chart) : chart_(chart) {
    double positive = std::numeric_limits<double>::infinity();
    bool all_positive = true;
    for (const Curve& curve : chart.curves) {
      for (const Curve::Column& column : curve.columns()) {
        if (column.count == 0) continue;
        low_ = std::min(low_, column.min);
        high_ = std::max(high_, column.max);
        if (column.min <= 0) all_positive = false;
        if (column.min > 0) positive = std::min(positive, column.min);
      }
    }
    // No curve has a value: the limits are as they began, which is how empty() knows.
    if (low_ > high_) return;
    // One value that is not positive has no place on a logarithmic axis, so it makes the axis linear.
    logarithmic_ = chart.may_be_logarithmic && all_positive && high_ / positive > kSpan;
    if (logarithmic_) {
      low_ = std::log10(low_);
      high_ = std::log10(high_);
    } else if (chart.from_zero) {
      low_ = std::min(low_, 0.0);
    }
    // A flat curve needs a height to be drawn in.
    if (!(high_ > low_)) {
      const double half = high_ == 0 ? 0.5 : std::fabs(high_) * 0.1;
      low_ -= half;
      high_ += half;
    }
    const double margin = (high_ - low_) * 0.05;
    // An axis from zero begins exactly there, so that heights can be compared.
    if (!chart.from_zero || low_ < 0) low_ -= margin;
    high_ += margin;
    first_ = chart.first;
    // A run at its first step has no range yet, and x() divides by it.
    last_ = chart.last > chart.first ? chart.last : chart.first + 1;
  }

  bool empty() const { return low_ > high_; }
  double x(double value) const { return kLeft + (value - first_) / (last_ - first_) * (kRight - kLeft); }
  double y(double value) const {
    const double place = logarithmic_ ? std::log10(value) : value;
    return kBottom - (place - low_) / (high_ - low_) * (kBottom - kTop);
  }

  void axes(SvgPicture& picture) const {
    for (const double tick : logarithmic_ ? logarithmic_ticks(low_, high_) : linear_ticks(low_, high_, 5)) {
      const double value = logarithmic_ ? std::pow(10, tick) : tick;
      const double at = y(value);
      picture.line(kLeft, at, kRight, at, "grid");
      picture.text(kLeft - 8, at + 4, "muted right", tick_text(value, chart_.percent));
    }
    picture.line(kLeft, kBottom, kRight, kBottom, "axis");
    for (const double tick : linear_ticks(first_, last_, 7)) {
      if (tick != std::round(tick)) continue;  // steps are whole
      picture.line(x(tick), kBottom, x(tick), kBottom + 4, "axis");
      // The last one would leave the picture.
      const bool at_edge = x(tick) > kRight - 20;
      picture.text(at_edge ? kRight : x(tick), kBottom + 18, at_edge ? "muted right" : "muted middle",
                   step_text(tick));
    }
    picture.text((kLeft + kRight) / 2, kBottom + 34, "muted middle", chart_.x_label);
  }

  void cuts(SvgPicture& picture) const {
    std::size_t labels = 0;
    for (std::size_t i = 0; i < chart_.cuts.size(); ++i) {
      const double at = x(chart_.cuts[i].x);
      picture.line(at, kTop, at, kBottom, "cut");
      const double next = i + 1 < chart_.cuts.size() ? x(chart_.cuts[i + 1].x) : kRight;
      // The line stays: only a label that would run into the next cut is left out.
      if (next - at < kLabelRoom || ++labels > kMostLabels) continue;
      picture.text(at + 4, kTop + 9, "muted small", chart_.cuts[i].label);
    }
  }

  void curve(SvgPicture& picture, const Curve& curve, std::size_t index) const {
    std::string line;
    std::string dots;
    std::vector<const Curve::Column*> part;
    std::size_t points = 0;
    std::string bands;
    bool ranges = false;
    const auto finish_part = [&] {
      bands += band_of(part);
      part.clear();
    };
    for (const Curve::Column& column : curve.columns()) {
      if (column.broken && !part.empty()) finish_part();
      if (column.count == 0) continue;
      line += (part.empty() ? "M" : "L") + at(column.x, column.mean());
      // A line of no length with round ends is a dot.
      dots += "M" + at(column.x, column.mean()) + "h0";
      part.push_back(&column);
      ranges = ranges || column.max > column.min;
      ++points;
    }
    finish_part();
    // SVG paints in the order of the elements, so the band comes before the line.
    if (ranges && chart_.curves.size() <= kMostBands) picture.path(bands, color_of(index) + "-fill band");
    picture.path(line, stroke_of(index), chart_.curves.size() <= kMostBands ? "" : curve.name());
    if (points <= kMostPointMarks) picture.path(dots, color_of(index) + " dot");
  }

 private:
  std::string at(double x_value, double y_value) const {
    return svg_number(x(x_value)) + " " + svg_number(y(y_value));
  }

  // From the maxima to the right back along the minima.
  std::string band_of(const std::vector<const Curve::Column*>& part) const {
    if (part.size() < 2) return {};
    std::string band;
    for (const Curve::Column* column : part) band += (band.empty() ? "M" : "L") + at(column->x, column->max);
    for (auto column = part.rbegin(); column != part.rend(); ++column)
      band += "L" + at((*column)->x, (*column)->min);
    return band + "Z";
  }

  const LineChart& chart_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
  double first_ = 0;
  double last_ = 1;
  bool logarithmic_ = false;
};

}  // namespace

Curve::Curve(std::string name, double first, double last)
    : name_(std::move(name)),
      first_(first),
      width_((last > first ? last - first : 1) / static_cast<double>(kColumns - 1)),
      columns_(kColumns) {}

void Curve::add(double x, double y) {
  const double place = std::clamp(std::round((x - first_) / width_), 0.0, static_cast<double>(kColumns - 1));
  Column& column = columns_[static_cast<std::size_t>(place)];
  ++points_;
  // A gap in the line shows where the value was not finite.
  if (!std::isfinite(y)) {
    column.broken = true;
    return;
  }
  if (column.count == 0) {
    column.min = y;
    column.max = y;
  }
  ++column.count;
  // A running mean: the sum of many large steps would lose digits.
  column.x += (x - column.x) / static_cast<double>(column.count);
  column.sum += y;
  column.min = std::min(column.min, y);
  column.max = std::max(column.max, y);
}

SvgPicture line_chart(const LineChart& chart) {
  SvgPicture picture(kWidth, kHeight);
  const Plot plot(chart);
  if (plot.empty()) {
    picture.set_height(60);
    picture.text(kLeft, 34, "muted", "no values yet");
    return picture;
  }
  plot.axes(picture);
  plot.cuts(picture);
  double x = kLeft;
  double y = 14;
  int height = kHeight;
  for (std::size_t i = 0; i < chart.curves.size(); ++i) {
    const Curve& curve = chart.curves[i];
    if (curve.empty()) continue;
    plot.curve(picture, curve, i);
    // Only the reader's font knows how wide a text is; 7.5 pixels a character is an estimate.
    const double width = 46 + 7.5 * static_cast<double>(curve.name().size());
    if (x > kLeft && x + width > kRight) {
      // There is room for one line of names above the curves; the others stand below.
      x = kLeft;
      y = y < kTop ? kHeight + 6 : y + kLegendLine;
      height = static_cast<int>(y + kLegendLine);
    }
    picture.line(x, y, x + 16, y, stroke_of(i) + " thick");
    picture.text(x + 22, y + 4, "ink", curve.name());
    x += width;
  }
  picture.set_height(height);
  return picture;
}

SvgPicture bar_chart(const BarChart& chart) {
  constexpr double kBarsAt = 300;  // names stand to the left
  constexpr double kFull = 430;
  constexpr double kMostOverFull = 1.15;  // shows that a bar is too long, and leaves room for its text
  constexpr int kLine = 25;
  SvgPicture picture(kWidth, 0);
  picture.text(20, 30, "title", chart.title);
  picture.text(20, 52, "muted", chart.subtitle);
  int y = 66;
  if (chart.groups.empty()) picture.text(20, y + 24, "ink", chart.nothing);
  for (const BarGroup& group : chart.groups) {
    picture.text(20, y + 24, "label", group.title);
    y += 38;
    if (group.bars.empty()) {
      picture.text(kBarsAt, y + 14, "muted", chart.nothing);
      y += kLine;
    }
    for (const Bar& bar : group.bars) {
      const double length = std::clamp(bar.length / group.full, 0.0, kMostOverFull) * kFull;
      picture.text(kBarsAt - 10, y + 14, "ink right", bar.name);
      picture.rectangle(kBarsAt, y, length, 18, bar.classes);
      picture.text(kBarsAt + length + 8, y + 14, "ink", bar.value);
      y += kLine;
    }
    y += 8;
  }
  if (!chart.footer.empty()) {
    picture.text(20, y + 24, "muted", chart.footer);
    y += 24;
  }
  picture.set_height(y + 30);
  return picture;
}

}}  // namespace holdfast::v0_2
