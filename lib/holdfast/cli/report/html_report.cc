#include "holdfast/cli/report/html_report.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/report/fleet_report.h"
#include "holdfast/cli/report/run_curves.h"
#include "holdfast/cli/report/svg.h"
#include "holdfast/cli/report/timeline.h"
#include "holdfast/cli/version.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kMostRows = 500;  // of a table
constexpr std::size_t kMostCuts = 200;  // of a chart; more would be a wall
constexpr std::size_t kMostRuns = 48;   // in a chart

// Fonts of the reader's system only: the page must look the same without a network, years later.
constexpr const char* kPageStyle =
    "body{margin:0;font:15px/1.5 system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif;"
    "background:#f4f6f9;color:#1f2733}"
    "main{max-width:980px;margin:0 auto;padding:28px 20px 48px}"
    "h1{font-size:24px;margin:0;overflow-wrap:anywhere}h2{font-size:16px;margin:0 0 6px}"
    "header p,figcaption,footer{color:#667085;margin:2px 0 0}figcaption,footer{font-size:13px}"
    "section,.tile{background:#fff;border:1px solid #e3e7ee;border-radius:10px}"
    "section{padding:16px 18px;margin-top:16px}figure{margin:0}svg{display:block;width:100%;height:auto}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(205px,1fr));gap:12px;margin-top:18px}"
    ".tile{padding:11px 14px}.tile b{display:block;font-size:22px;line-height:1.3}"
    ".tile span{font-size:13px;color:#667085}.scroll{overflow-x:auto}"
    "table{border-collapse:collapse;width:100%;font-size:13px}th,td{text-align:right;padding:5px "
    "9px;white-space:nowrap}"
    "th{color:#667085;font-weight:500;border-bottom:1px solid #e3e7ee}td{border-bottom:1px solid #eef1f5}"
    ".left{text-align:left}td.text{text-align:left;white-space:normal;min-width:140px}"
    "@media(prefers-color-scheme:dark){body{background:#0e1116;color:#e4e8ee}"
    "section,.tile{background:#14181f;border-color:#29303b}th{border-color:#29303b}td{border-color:#20262f}"
    "header p,figcaption,footer,.tile span,th{color:#98a2b3}}";

class Page {
 public:
  explicit Page(const std::string& title) {
    text_ =
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>" +
        svg_escaped(title) + "</title>\n<style>" + kPageStyle + svg_style() +
        "</style>\n</head>\n<body>\n<main>\n";
  }

  // For this program's own markup. Whatever comes from a run passes svg_escaped() before.
  void raw(const std::string& html) { text_ += html; }
  void tile(const std::string& value, const std::string& what) {
    text_ +=
        "<div class=\"tile\"><b>" + svg_escaped(value) + "</b><span>" + svg_escaped(what) + "</span></div>\n";
  }
  void figure(const std::string& title, const SvgPicture& picture, const std::string& caption) {
    text_ += "<section>\n<h2>" + svg_escaped(title) + "</h2>\n<figure>\n" + picture.element(title);
    if (!caption.empty()) text_ += "<figcaption>" + svg_escaped(caption) + "</figcaption>\n";
    text_ += "</figure>\n</section>\n";
  }
  std::string done() { return text_ + "</main>\n</body>\n</html>\n"; }

 private:
  std::string text_;
};

// A table whose columns are numbers (right), words (left) or long texts.
class HtmlTable {
 public:
  enum class Column { number, word, text };
  explicit HtmlTable(std::vector<std::pair<std::string, Column>> columns) : columns_(std::move(columns)) {}

  void add(const std::vector<std::string>& cells) {
    rows_ += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      rows_ += "<td" + style(columns_[i].second, true) + ">" + svg_escaped(cells[i]) + "</td>";
    }
    rows_ += "</tr>\n";
  }
  std::string html() const {
    std::string head;
    for (const auto& [name, column] : columns_) {
      head += "<th" + style(column, false) + ">" + svg_escaped(name) + "</th>";
    }
    return "<div class=\"scroll\"><table>\n<thead><tr>" + head + "</tr></thead>\n<tbody>\n" + rows_ +
           "</tbody>\n</table></div>\n";
  }

 private:
  static std::string style(Column column, bool cell) {
    if (column == Column::number) return {};
    return column == Column::text && cell ? " class=\"text\"" : " class=\"left\"";
  }

  std::vector<std::pair<std::string, Column>> columns_;
  std::string rows_;
};

void put_tiles(Page& page, const RunAccount& run, const RunCurves& curves) {
  std::int64_t saves = 0;
  std::uint64_t bytes = 0;
  std::int64_t lost_steps = 0;
  for (const LifeAccount& life : run.lives) {
    saves += life.saves;
    bytes += life.bytes;
    // No life has computed the newest one's last steps again so far.
    if (&life != &run.lives.back()) lost_steps += life.last_step - life.kept_step;
  }
  page.raw("<div class=\"tiles\">\n");
  page.tile(share_text(run.time.kept, run.time.up), "goodput: time of steps that count");
  page.tile(format_count(curves.last), "steps reached");
  page.tile(format_duration(run.time.up), "up time, of " +
                                              format_count(static_cast<std::int64_t>(run.lives.size())) +
                                              (run.lives.size() == 1 ? " attempt" : " attempts"));
  page.tile(
      format_count(run.interruptions),
      run.missed == 0 ? "interruptions" : "interruptions, " + format_count(run.missed) + " without a notice");
  page.tile(format_duration(run.time.lost), "computed again: " + format_count(lost_steps) + " steps");
  page.tile(format_count(saves), "saves, " + format_bytes(bytes));
  page.tile(format_duration(run.time.waited),
            "training waited for saves: " + share_text(run.time.waited, run.time.up));
  page.tile(format_duration(run.risk),
            "at risk at the last record: " + format_count(run.risk_steps) + " steps");
  page.raw("</div>\n");
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

void put_curves(Page& page, RunCurves& curves) {
  std::vector<Cut> cuts = curves.cuts;
  const bool too_many = cuts.size() > kMostCuts;
  if (too_many) cuts.clear();
  LineChart chart{.curves = {},
                  .cuts = cuts,
                  .first = static_cast<double>(curves.first),
                  .last = static_cast<double>(curves.last),
                  .x_label = "step"};
  std::string where = "Dashed lines: a new attempt resumed here. ";
  if (cuts.empty()) where.clear();
  if (too_many)
    where = format_count(static_cast<std::int64_t>(curves.cuts.size())) + " attempts are too many to mark. ";

  LineChart loss = chart;
  loss.may_be_logarithmic = true;
  loss.curves.push_back(curves.loss);
  LineChart accuracy = chart;
  accuracy.percent = true;
  std::vector<std::pair<std::string, LineChart>> others;
  for (const auto& [name, curve] : curves.measured) {
    // By the name, because a metric has no unit. At most three curves share a chart: there are three colours.
    LineChart& place = contains(name, "accuracy") ? accuracy : loss;
    if ((contains(name, "accuracy") || contains(name, "loss")) && place.curves.size() < 3) {
      place.curves.push_back(curve);
    } else {
      others.emplace_back(name, chart).second.curves.push_back(curve);
    }
  }
  page.figure("Loss", line_chart(loss),
              where + "The line is the mean of neighbouring steps, the band their range.");
  if (!accuracy.curves.empty()) page.figure("Accuracy", line_chart(accuracy), "");
  for (const auto& [name, other] : others) page.figure(name, line_chart(other), "");

  LineChart speed = chart;
  speed.from_zero = true;
  speed.curves.push_back(curves.speed);
  page.figure("Throughput", line_chart(speed), "Steps per second, evaluations and waits for saves included.");

  LineChart saves = chart;
  // The training waits far shorter than a write takes, and that curve would lie on the axis.
  saves.may_be_logarithmic = true;
  saves.curves = {curves.save, curves.waited};
  page.figure(
      "Saves and their price", line_chart(saves),
      "Seconds of each save: how long its write and commit took, and how long the training waited for it.");
}

void put_attempts(Page& page, const RunAccount& run) {
  using enum HtmlTable::Column;
  HtmlTable table({{"attempt", number},
                   {"began", word},
                   {"up", number},
                   {"start-up", number},
                   {"from", number},
                   {"steps", number},
                   {"lost", number},
                   {"saves", number},
                   {"notice", word},
                   {"end", text}});
  // A run of spot machines may have thousands of attempts, and a browser must still open the page.
  const std::size_t first = run.lives.size() > kMostRows ? run.lives.size() - kMostRows : 0;
  for (std::size_t i = first; i < run.lives.size(); ++i) {
    const LifeAccount& life = run.lives[i];
    std::string end = word_of(life.ending);
    if (!life.reason.empty()) end += " (" + life.reason + ")";
    table.add({std::to_string(life.attempt), format_utc(life.began), format_duration(life.time.up),
               format_duration(life.time.startup), format_count(life.from_step),
               format_count(life.last_step - life.from_step), format_count(life.last_step - life.kept_step),
               format_count(life.saves),
               life.lead      ? format_duration(*life.lead) + " ahead"
               : life.noticed ? "yes"
                              : "–",
               end});
  }
  page.raw("<section>\n<h2>Attempts</h2>\n" + table.html());
  if (first > 0) page.raw("<figcaption>The newest " + format_count(kMostRows) + " attempts.</figcaption>\n");
  page.raw("</section>\n");
}

void put_notices(Page& page, const std::vector<LedgerLife>& lives) {
  using enum HtmlTable::Column;
  HtmlTable table({{"time", word},
                   {"attempt", number},
                   {"source", word},
                   {"kind", word},
                   {"time left", number},
                   {"what it said", text}});
  std::size_t rows = 0;
  // From the newest on, so that the limit leaves out the oldest ones.
  for (auto life = lives.rbegin(); life != lives.rend(); ++life) {
    for (auto notice = life->notices.rbegin(); notice != life->notices.rend() && rows < kMostRows;
         ++notice, ++rows) {
      table.add({format_utc(notice->when), std::to_string(life->attempt), notice->source, notice->kind,
                 notice->left ? format_duration(*notice->left) : "–", notice->text});
    }
  }
  if (rows > 0) page.raw("<section>\n<h2>Notices, newest first</h2>\n" + table.html() + "</section>\n");
}

// Not that of the last life alone, because the clocks of two machines differ.
// The newest moment that any ledger tells of.
std::optional<WallTime> newest_record(const std::vector<LedgerLife>& lives) {
  std::optional<WallTime> newest;
  for (const LedgerLife& life : lives) {
    if (life.last_wall && (!newest || *life.last_wall > *newest)) newest = life.last_wall;
  }
  return newest;
}

void put_end(Page& page, const char* source) {
  page.raw("<footer><p>Made by holdfast " + std::string(kVersion) + " from the ledgers of " + source +
           ". No script, nothing from a network.</p></footer>\n");
}

// A chart with one curve a run.
struct Overlay {
  LineChart chart;
  void add(Curve curve, const std::string& run, const RunCurves& of) {
    if (curve.empty() || chart.curves.size() >= kMostRuns) return;
    const auto first = static_cast<double>(of.first);
    chart.first = chart.curves.empty() ? first : std::min(chart.first, first);
    chart.last = std::max(chart.last, static_cast<double>(of.last));
    curve.rename(run);
    chart.curves.push_back(std::move(curve));
  }
};

void put_overlays(Page& page, const std::filesystem::path& root, const nlohmann::ordered_json& report) {
  Overlay loss{.chart = {.curves = {}, .cuts = {}, .x_label = "step", .may_be_logarithmic = true}};
  std::map<std::string, Overlay> metrics;
  for (const auto& row : report.at("runs")) {
    const auto name = row.at("name").get<std::string>();
    if (row.at("verdict") == "unreadable") continue;
    const auto directory = open_run_directory(root / name);
    const std::vector<LedgerLife> lives = read_lives(*directory);
    const RunCurves curves = curves_of(*directory, lives, account_for(lives));
    const std::string run = printable(name, 40);
    loss.add(curves.loss, run, curves);
    for (const auto& [metric, curve] : curves.measured) {
      Overlay& one =
          metrics.try_emplace(metric, Overlay{.chart = {.curves = {}, .cuts = {}, .x_label = "step"}})
              .first->second;
      one.chart.percent = contains(metric, "accuracy");
      one.chart.may_be_logarithmic = contains(metric, "loss");
      one.add(curve, run, curves);
    }
  }
  page.figure("Loss", line_chart(loss.chart),
              report.at("runs").size() > kMostRuns
                  ? "The first " + format_count(kMostRuns) + " runs of the table."
                  : "The mean of neighbouring steps. Steps that were computed again count once.");
  for (const auto& [metric, overlay] : metrics) page.figure(metric, line_chart(overlay.chart), "");
}

}  // namespace

std::string html_fleet_report(const std::filesystem::path& root, const nlohmann::ordered_json& report) {
  const std::string name = printable(root.string(), 100);
  Page page(name + " – Holdfast");
  page.raw("<header>\n<h1>" + svg_escaped(name) + "</h1>\n<p>" + svg_escaped(fleet_line(report)) + ". " +
           svg_escaped(report.at("time").get<std::string>()) + ".</p>\n</header>\n");
  if (!report.at("runs").empty()) {
    const FleetTable shown = fleet_table(report);
    std::vector<std::pair<std::string, HtmlTable::Column>> columns;
    for (const std::string& head : shown.head) {
      columns.emplace_back(head, columns.size() < 2 ? HtmlTable::Column::word : HtmlTable::Column::number);
    }
    HtmlTable table(columns);
    for (const std::vector<std::string>& row : shown.rows) table.add(row);
    page.raw("<section>\n<h2>Runs</h2>\n" + table.html() + "</section>\n");
    put_overlays(page, root, report);
  }
  put_end(page, "the runs");
  return page.done();
}

std::string html_report(const std::string& name, Directory& run_directory,
                        const std::vector<LedgerLife>& lives, const RunAccount& account) {
  Page page(name + " – Holdfast");
  std::string status = "No attempt has begun to train.";
  if (!account.lives.empty()) {
    const LifeAccount& last = account.lives.back();
    status = "Attempt " + std::to_string(last.attempt) + ": " + word_of(last.ending) + " at step " +
             format_count(last.last_step) + ".";
  }
  if (const auto newest = newest_record(lives)) status += " Last record: " + format_utc(*newest) + ".";
  page.raw("<header>\n<h1>" + svg_escaped(name) + "</h1>\n<p>" + svg_escaped(status) + "</p>\n</header>\n");
  if (!account.lives.empty()) {
    RunCurves curves = curves_of(run_directory, lives, account);
    put_tiles(page, account, curves);
    put_curves(page, curves);
    const std::string newest = account.lives.size() > kMostTimelineRows
                                   ? "The newest " + format_count(kMostTimelineRows) + " attempts."
                                   : "";
    page.figure("Attempts over time", timeline_picture(lives, account, ""), newest);
    put_attempts(page, account);
    put_notices(page, lives);
  }
  put_end(page, "the run");
  return page.done();
}

}}  // namespace holdfast::v0_2
