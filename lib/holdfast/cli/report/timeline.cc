#include "holdfast/cli/report/timeline.h"

#include <algorithm>
#include <array>
#include <map>

#include "holdfast/base/seconds.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr int kLeftOfBars = 92;
constexpr int kWidthOfBars = 690;
constexpr int kRightOfBars = 118;
constexpr std::size_t kMostTicks = 400;  // per row; more would merge anyway, and make the file large

// Rows of bars, from the wall time `from` to `to`.
class Bars {
 public:
  Bars(SvgPicture& picture, double from, double to, int top, int row)
      : picture_(picture),
        from_(from),
        // A life that has just begun has no length yet.
        scale_(kWidthOfBars / std::max(to - from, 1.0)),
        top_(top),
        row_(row) {}

  void at_row(std::size_t index) { y_ = top_ + static_cast<double>(index) * row_; }
  double x(double wall) const { return kLeftOfBars + (wall - from_) * scale_; }

  void bar(double wall, double length, const char* classes) const {
    if (length > 0) picture_.rectangle(x(wall), y_ + row_ * 0.2, length * scale_, row_ * 0.6, classes);
  }
  void tick(double wall) const {
    picture_.rectangle(x(wall), y_ + row_ * 0.2, 0.8, row_ * 0.6, "commit-fill");
  }
  void mark(double wall, double deadline, const std::string& what) const {
    if (deadline > wall) {
      picture_.rectangle(x(wall), y_ + row_ * 0.06, (deadline - wall) * scale_, 1.5, "ink");
    }
    const double half = row_ * 0.16;
    picture_.path("M" + svg_number(x(wall) - half) + " " + svg_number(y_) + "h" + svg_number(2 * half) +
                      "l-" + svg_number(half) + " " + svg_number(row_ * 0.3) + "z",
                  "ink", what);
  }
  void label(double at, const char* classes, const std::string& text) const {
    picture_.text(at, y_ + row_ * 0.68, std::string(classes) + (row_ < 20 ? " small" : ""), text);
  }

 private:
  SvgPicture& picture_;
  double from_;
  double scale_;
  int top_;
  int row_;
  double y_ = 0;
};

// Wall time of a moment of a life: its start plus the steady time since then, because wall clocks may be set.
double wall_of(const LedgerLife& life, Duration up) {
  return in_seconds(life.start) + in_seconds(up - life.start_up);
}

// When training reached a step: the first mark at or after it.
Duration up_at(const LedgerLife& life, std::int64_t step) {
  for (const LedgerMark& mark : life.marks) {
    if (mark.step >= step) return mark.up;
  }
  return life.last_up;
}

void draw_row(const LedgerLife& life, const LifeAccount& account, const Bars& bars) {
  const Duration kept = account.last_step > account.kept_step ? up_at(life, account.kept_step) : life.last_up;
  bars.bar(in_seconds(account.began), in_seconds(life.startup), "startup-fill");
  bars.bar(wall_of(life, life.start_up), in_seconds(kept - life.start_up), "kept-fill");
  bars.bar(wall_of(life, kept), in_seconds(life.last_up - kept), "lost-fill");
  for (const LedgerPause& pause : life.pauses) {
    bars.bar(wall_of(life, pause.from), in_seconds(pause.to.value_or(life.last_up) - pause.from),
             "paused-fill");
  }
  // Every n-th commit, so that ticks stay spread over the whole life.
  const std::size_t stride = life.commits.size() / kMostTicks + 1;
  for (std::size_t i = 0; i < life.commits.size(); i += stride) bars.tick(wall_of(life, life.commits[i].up));
  std::size_t marks = 0;
  for (const LedgerNotice& notice : life.notices) {
    // A request for a checkpoint announces no end. More marks than these would cover each other.
    if (notice.kind == "checkpoint" || ++marks > 20) continue;
    const double seen = wall_of(life, notice.up);
    // Cuts a far deadline, which would leave the picture.
    const double left = std::min(in_seconds(notice.left.value_or(Duration::zero())), 600.0);
    bars.mark(seen, seen + left, notice.source + ": " + notice.kind + " " + notice.text);
  }
}

void draw_legend(SvgPicture& picture, int y) {
  double x = kLeftOfBars;
  const std::array<std::pair<const char*, const char*>, 4> parts{{{"startup-fill", "start-up"},
                                                                  {"kept-fill", "steps that count"},
                                                                  {"lost-fill", "computed again"},
                                                                  {"paused-fill", "paused"}}};
  for (const auto& [classes, what] : parts) {
    picture.rectangle(x, y, 12, 12, classes);
    picture.text(x + 17, y + 10, "muted", what);
    x += 132;
  }
  picture.path("M" + svg_number(x - 44) + " " + svg_number(y + 1) + "h10l-5 9z", "ink");
  picture.text(x - 27, y + 10, "muted", "notice, line to its deadline; white: commits");
}

}  // namespace

SvgPicture timeline_picture(const std::vector<LedgerLife>& lives, const RunAccount& account,
                            const std::string& title) {
  // By number, because attempts that never came to training have a ledger and no account.
  std::map<AttemptNumber, const LedgerLife*> by_attempt;
  for (const LedgerLife& life : lives) by_attempt[life.attempt] = &life;
  const std::size_t count = std::min(account.lives.size(), kMostTimelineRows);
  const std::size_t first = account.lives.size() - count;
  // Low rows for many attempts, so that the picture stays a few screens high.
  const int row = count > 60 ? 12 : 26;
  const int head = title.empty() ? 6 : 46;
  const int top = head + 32;

  double from = 0;
  double to = 1;
  for (std::size_t i = 0; i < count; ++i) {
    const LifeAccount& life = account.lives[first + i];
    const double began = in_seconds(life.began);
    const double ended = wall_of(*by_attempt.at(life.attempt), by_attempt.at(life.attempt)->last_up);
    // The clocks of two machines differ, so a later life may seem to begin earlier.
    from = i == 0 ? began : std::min(from, began);
    to = i == 0 ? ended : std::max(to, ended);
  }
  SvgPicture picture(kLeftOfBars + kWidthOfBars + kRightOfBars, 0);
  if (!title.empty()) picture.text(20, 30, "title", title);
  draw_legend(picture, head);
  Bars bars(picture, from, to, top, row);
  for (std::size_t i = 0; i < count; ++i) {
    const LifeAccount& life = account.lives[first + i];
    bars.at_row(i);
    bars.label(kLeftOfBars - 8, "ink right", "attempt " + std::to_string(life.attempt));
    draw_row(*by_attempt.at(life.attempt), life, bars);
    const double ended = wall_of(*by_attempt.at(life.attempt), by_attempt.at(life.attempt)->last_up);
    bars.label(bars.x(ended) + 6, "muted", word_of(life.ending));
  }
  const int bottom = top + static_cast<int>(count) * row;
  if (count == 0) {
    picture.text(kLeftOfBars, bottom + 16, "ink", "No attempt has begun to train.");
  } else {
    const auto wall = [](double time) {
      return format_utc(
          WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::duration<double>(time))));
    };
    picture.text(kLeftOfBars, bottom + 22, "muted", wall(from));
    picture.text(kLeftOfBars + kWidthOfBars, bottom + 22, "muted right", wall(to));
  }
  picture.set_height(bottom + 40);
  return picture;
}

}}  // namespace holdfast::v0_2
