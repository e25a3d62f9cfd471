#include "holdfast/cli/timeline.h"

#include <algorithm>
#include <array>
#include <map>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/svg_text.h"

namespace holdfast { inline namespace v1 {
namespace {

constexpr int kLeft = 110;
constexpr int kPlot = 900;
constexpr int kRight = 170;
constexpr int kTop = 92;
constexpr std::size_t kMostTicks = 400;  // per row; more would merge anyway, and make the file large

constexpr const char* kStartup = "#b8bec8";
constexpr const char* kKept = "#1668b8";
constexpr const char* kLost = "#c9504a";
constexpr const char* kPaused = "#e3c567";
constexpr const char* kNotice = "#222222";

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }
double seconds(WallTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }
std::string text_at(double x, double y, const std::string& style, const std::string& text) {
  return svg_text(x, y, style, printable(text, 200));
}

class Plot {
 public:
  Plot(double from, double to, int row) : from_(from), scale_(kPlot / std::max(to - from, 1.0)), row_(row) {}

  void at_row(std::size_t index) { y_ = kTop + static_cast<double>(index) * row_; }
  double y() const { return y_; }
  double x(double wall) const { return kLeft + (wall - from_) * scale_; }

  std::string bar(double wall, double length, const char* color) const {
    if (length <= 0) return {};
    return "<rect x=\"" + svg_number(x(wall)) + "\" y=\"" + svg_number(y_ + row_ * 0.2) + "\" width=\"" +
           svg_number(std::max(length * scale_, 0.5)) + "\" height=\"" + svg_number(row_ * 0.6) +
           "\" fill=\"" + color + "\"/>\n";
  }
  std::string tick(double wall) const {
    return "<rect x=\"" + svg_number(x(wall)) + "\" y=\"" + svg_number(y_ + row_ * 0.2) +
           "\" width=\"0.8\" height=\"" + svg_number(row_ * 0.6) +
           "\" fill=\"#ffffff\" fill-opacity=\"0.7\"/>\n";
  }
  std::string mark(double wall, double deadline, const std::string& what) const {
    std::string out;
    if (deadline > wall) {
      out += "<rect x=\"" + svg_number(x(wall)) + "\" y=\"" + svg_number(y_ + row_ * 0.06) + "\" width=\"" +
             svg_number((deadline - wall) * scale_) + "\" height=\"1.5\" fill=\"" + kNotice + "\"/>\n";
    }
    const double half = row_ * 0.16;
    return out + "<path d=\"M" + svg_number(x(wall) - half) + " " + svg_number(y_) + "h" +
           svg_number(2 * half) + "l-" + svg_number(half) + " " + svg_number(row_ * 0.3) + "z\" fill=\"" +
           kNotice + "\"><title>" + svg_escaped(printable(what, 200)) + "</title></path>\n";
  }

 private:
  double from_;
  double scale_;
  int row_;
  double y_ = kTop;
};

// Wall time of a moment of a life: its start plus the steady time since then, because wall clocks may be set.
double wall_of(const LedgerLife& life, Duration up) {
  return seconds(life.start) + seconds(up - life.start_up);
}

// When training reached a step: the first mark at or after it.
Duration up_at(const LedgerLife& life, std::int64_t step) {
  for (const LedgerMark& mark : life.marks) {
    if (mark.step >= step) return mark.up;
  }
  return life.last_up;
}

std::string row_of(const LedgerLife& life, const LifeAccount& account, const Plot& plot) {
  const Duration kept = account.last_step > account.kept_step ? up_at(life, account.kept_step) : life.last_up;
  std::string out = plot.bar(seconds(account.began), seconds(life.startup), kStartup);
  out += plot.bar(wall_of(life, life.start_up), seconds(kept - life.start_up), kKept);
  out += plot.bar(wall_of(life, kept), seconds(life.last_up - kept), kLost);
  for (const LedgerPause& pause : life.pauses) {
    out +=
        plot.bar(wall_of(life, pause.from), seconds(pause.to.value_or(life.last_up) - pause.from), kPaused);
  }
  const std::size_t stride = life.commits.size() / kMostTicks + 1;
  for (std::size_t i = 0; i < life.commits.size(); i += stride) {
    out += plot.tick(wall_of(life, life.commits[i].up));
  }
  std::size_t marks = 0;
  for (const LedgerNotice& notice : life.notices) {
    if (notice.kind == "checkpoint" || ++marks > 20) continue;
    const double seen = wall_of(life, notice.up);
    // Cuts a far deadline, which would leave the picture.
    const double left = std::min(seconds(notice.left.value_or(Duration::zero())), 600.0);
    out += plot.mark(seen, seen + left, notice.source + ": " + notice.kind + " " + notice.text);
  }
  return out;
}

std::string legend() {
  std::string out;
  double x = kLeft;
  const std::array<std::pair<const char*, const char*>, 4> parts{
      {{kStartup, "start-up"}, {kKept, "steps that count"}, {kLost, "computed again"}, {kPaused, "paused"}}};
  for (const auto& [color, what] : parts) {
    out += "<rect x=\"" + svg_number(x) + "\" y=\"56\" width=\"12\" height=\"12\" fill=\"" + color + "\"/>\n";
    out += text_at(x + 17, 66, "fill=\"#555\"", what);
    x += 145;
  }
  out += "<path d=\"M" + svg_number(x) + " 57h10l-5 9z\" fill=\"" + std::string(kNotice) + "\"/>\n";
  return out + text_at(x + 17, 66, "fill=\"#555\"", "notice, line to its deadline; white: commits");
}

}  // namespace

std::string timeline_svg(const std::vector<LedgerLife>& lives, const RunAccount& account,
                         const std::string& title) {
  std::map<AttemptNumber, const LedgerLife*> by_attempt;
  for (const LedgerLife& life : lives) by_attempt[life.attempt] = &life;
  const std::size_t count = std::min(account.lives.size(), kMostTimelineRows);
  const std::size_t first = account.lives.size() - count;
  const int row = count > 60 ? 12 : 26;

  double from = 0;
  double to = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const LifeAccount& life = account.lives[first + i];
    const double began = seconds(life.began);
    const double ended = wall_of(*by_attempt.at(life.attempt), by_attempt.at(life.attempt)->last_up);
    from = i == 0 ? began : std::min(from, began);
    to = i == 0 ? ended : std::max(to, ended);
  }
  Plot plot(from, to, row);
  std::string body = text_at(20, 30, "font-size=\"18\" font-weight=\"bold\"", title);
  body += legend();
  for (std::size_t i = 0; i < count; ++i) {
    const LifeAccount& life = account.lives[first + i];
    plot.at_row(i);
    const std::string size = row < 20 ? "font-size=\"9\" " : "";
    body += text_at(kLeft - 8, plot.y() + row * 0.68, size + "text-anchor=\"end\"",
                    "attempt " + std::to_string(life.attempt));
    body += row_of(*by_attempt.at(life.attempt), life, plot);
    const double ended = wall_of(*by_attempt.at(life.attempt), by_attempt.at(life.attempt)->last_up);
    body += text_at(plot.x(ended) + 6, plot.y() + row * 0.68, size + "fill=\"#555\"", word_of(life.ending));
  }
  const int bottom = kTop + static_cast<int>(count) * row;
  if (count == 0) {
    body += text_at(kLeft, bottom + 16, "", "No attempt has begun to train.");
  } else {
    const auto wall = [](double time) {
      return format_utc(
          WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::duration<double>(time))));
    };
    body += text_at(kLeft, bottom + 22, "fill=\"#555\"", wall(from));
    body += text_at(kLeft + kPlot, bottom + 22, "fill=\"#555\" text-anchor=\"end\"", wall(to));
  }
  const std::string size = "width=\"" + std::to_string(kLeft + kPlot + kRight) + "\" height=\"" +
                           std::to_string(bottom + 40) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
         " font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n" +
         body + "</svg>\n";
}

}}  // namespace holdfast::v1
