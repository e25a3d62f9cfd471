#include "holdfast/cli/report/fleet_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/cli/report/run_curves.h"
#include "holdfast/ledger/goodput.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using FleetJson = nlohmann::ordered_json;

// The worst last. An interruption passes by itself; a refusal needs a person.
int severity(int code) {
  constexpr std::array kOrder{ExitCode::complete, ExitCode::interrupted, ExitCode::difference,
                              ExitCode::unreadable, ExitCode::refused};
  const auto found = std::find(kOrder.begin(), kOrder.end(), static_cast<ExitCode>(code));
  return static_cast<int>(found - kOrder.begin());
}

bool is_better(double value, double than, bool lower) { return lower ? value < than : value > than; }

bool lower_wins(const std::string& metric, const SortBy& sort) {
  return metric == sort.metric ? sort.lower_first : lower_is_better(metric);
}

void keep_best(FleetJson& best, const std::string& metric, double value, const SortBy& sort) {
  const auto found = best.find(metric);
  if (found == best.end() || is_better(value, found->get<double>(), lower_wins(metric, sort))) {
    best[metric] = value;
  }
}

// Of each metric that the run has recorded, over all attempts, without steps that were computed again.
FleetJson best_of(Directory& run, const SortBy& sort) {
  const std::vector<LedgerLife> lives = read_lives(run);
  const RunCurves curves = curves_of(run, lives, account_for(lives));
  FleetJson best = FleetJson::object();
  for (const auto& [name, curve] : curves.measured) {
    for (const Curve::Column& column : curve.columns()) {
      if (column.count > 0) {
        keep_best(best, name, lower_wins(name, sort) ? column.min : column.max, sort);
      }
    }
  }
  return best;
}

// Empty if nobody has trained there.
FleetJson row_of(const std::filesystem::path& directory, const StatusLimits& limits, const SortBy& sort) {
  FleetJson row{{"name", directory.filename().string()}};
  try {
    const RunView view = look_at_run(directory);
    const FleetJson status = status_report(view, limits);
    if (status.at("verdict") == "untrained") return {};
    row.update(status);
    row["attempts"] = view.newest.attempt == 0 ? 0 : view.restarts + 1;
    row["best"] = best_of(*open_run_directory(directory), sort);
  } catch (const Error& error) {
    row.update({{"directory", directory.string()},
                {"verdict", "unreadable"},
                {"exit_code", static_cast<int>(ExitCode::unreadable)},
                {"phase", "unknown"},
                {"reason", error.what()},
                {"best", FleetJson::object()}});
  }
  return row;
}

std::optional<double> figure_in(const FleetJson& row, const char* name) {
  const auto found = row.find(name);
  return found != row.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

const FleetJson& part_of(const FleetJson& row, const char* name) {
  static const FleetJson none = FleetJson::object();
  const auto found = row.find(name);
  return found != row.end() && found->is_object() ? *found : none;
}

// Of the run's present loss, if it has no metric of that name.
std::optional<double> value_for_sort(const FleetJson& row, const SortBy& sort) {
  const auto best = figure_in(part_of(row, "best"), sort.metric.c_str());
  return best || sort.metric != "loss" ? best : figure_in(row, "loss");
}

void sort_rows(std::vector<FleetJson>& rows, const SortBy& sort) {
  if (sort.metric.empty()) return;
  std::stable_sort(rows.begin(), rows.end(), [&](const FleetJson& a, const FleetJson& b) {
    const auto left = value_for_sort(a, sort);
    const auto right = value_for_sort(b, sort);
    // Runs without a value come last.
    if (!left || !right) return left.has_value() && !right;
    return is_better(*left, *right, sort.lower_first);
  });
}

// What the table cannot show.
std::string why_incomplete(const std::vector<FleetJson>& rows, const SortBy& sort) {
  if (rows.empty()) return "no folder there holds a run that has begun; for one run leave --all out";
  const bool found = std::any_of(rows.begin(), rows.end(), [&](const FleetJson& row) {
    return sort.metric.empty() || value_for_sort(row, sort).has_value();
  });
  return found ? "" : "not sorted: no run has recorded '" + printable(sort.metric, 100) + "'";
}

FleetJson total_of(const std::vector<FleetJson>& rows, const SortBy& sort) {
  FleetJson verdicts = FleetJson::object();
  FleetJson best = FleetJson::object();
  double step = 0;
  std::optional<double> last_step = 0;
  double speed = 0;
  std::int64_t attempts = 0;
  double risk_steps = 0;
  double risk = 0;
  for (const FleetJson& row : rows) {
    const auto verdict = row.at("verdict").get<std::string>();
    verdicts[verdict] = verdicts.value(verdict, 0) + 1;
    const double done = figure_in(row, "step").value_or(0);
    step += done;
    // A complete run need not have recorded where it would end.
    const auto last = verdict == "complete" ? std::optional(done) : figure_in(row, "last_step");
    last_step = last_step && last ? std::optional(*last_step + *last) : std::nullopt;
    speed += figure_in(row, "steps_per_second").value_or(0);
    attempts += row.value("attempts", std::int64_t{0});
    risk_steps += figure_in(part_of(row, "risk"), "steps").value_or(0);
    risk += figure_in(part_of(row, "risk"), "s").value_or(0);
    for (const auto& [metric, value] : part_of(row, "best").items()) {
      keep_best(best, metric, value.get<double>(), sort);
    }
  }
  return {{"runs", rows.size()},
          {"verdicts", verdicts},
          {"step", std::llround(step)},
          {"last_step", last_step ? FleetJson(std::llround(*last_step)) : FleetJson(nullptr)},
          {"steps_per_second", json_number(speed)},
          {"attempts", attempts},
          {"risk", {{"steps", std::llround(risk_steps)}, {"s", json_number(risk)}}},
          {"best", best}};
}

std::string number_text(const FleetJson& row, const char* name) {
  const auto found = row.find(name);
  if (found == row.end()) return "-";
  if (found->is_number()) return format_number(found->get<double>());
  return found->is_string() ? found->get<std::string>() : "-";  // nan, inf
}

std::string count_text(const FleetJson& row, const char* name) {
  const auto value = figure_in(row, name);
  return value ? format_count(std::llround(*value)) : "-";
}

std::string seconds_text(const std::optional<double>& seconds) {
  return seconds ? format_duration(std::chrono::seconds(std::llround(*seconds))) : "-";
}

std::string steps_text(const FleetJson& row) {
  return count_text(row, "step") +
         (figure_in(row, "last_step") ? " of " + count_text(row, "last_step") : std::string());
}

std::string verdicts_text(const FleetJson& total) {
  std::string text;
  for (const auto& [verdict, count] : total.at("verdicts").items()) {
    text += (text.empty() ? "" : ", ") + std::to_string(count.get<int>()) + " " + verdict;
  }
  return text;
}

std::string runs_text(const FleetJson& total) {
  const auto runs = total.at("runs").get<std::int64_t>();
  return format_count(runs) + (runs == 1 ? " run" : " runs");
}

}  // namespace

SortBy parse_sort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string metric = text.substr(0, colon);
  if (colon == std::string::npos) return {.metric = text, .lower_first = lower_is_better(text)};
  const std::string direction = text.substr(colon + 1);
  if (metric.empty() || (direction != "min" && direction != "max")) {
    throw UsageError("--sort '" + text + "': expected a metric's name, or NAME:min or NAME:max");
  }
  return {.metric = metric, .lower_first = direction == "min"};
}

bool lower_is_better(const std::string& metric) {
  constexpr std::array kSmall{"loss", "error", "perplexity", "mse", "mae", "time", "wer"};
  return std::any_of(kSmall.begin(), kSmall.end(),
                     [&](const char* part) { return metric.find(part) != std::string::npos; });
}

std::vector<std::string> folders_in(const std::filesystem::path& root) {
  std::error_code error;
  std::set<std::string> names;
  auto entry = std::filesystem::directory_iterator(root, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with('.') && name != "lost+found" && entry->is_directory(ignored)) names.insert(name);
  }
  if (error) throw IoError("read", root.native(), error.value());
  return {names.begin(), names.end()};
}

nlohmann::ordered_json fleet_report(const std::filesystem::path& root, const StatusLimits& limits,
                                    const SortBy& sort) {
  std::vector<FleetJson> rows;
  for (const std::string& name : folders_in(root)) {
    if (FleetJson row = row_of(root / name, limits, sort); !row.empty()) rows.push_back(std::move(row));
  }
  sort_rows(rows, sort);
  FleetJson report{{"schema", kStatusSchema},
                   {"directory", root.string()},
                   {"time", format_utc(Clock::real().wall_now())},
                   {"verdict", "untrained"},
                   {"exit_code", static_cast<int>(ExitCode::difference)},
                   {"reason", why_incomplete(rows, sort)}};
  const auto worst = std::max_element(rows.begin(), rows.end(), [](const FleetJson& a, const FleetJson& b) {
    return severity(a.at("exit_code").get<int>()) < severity(b.at("exit_code").get<int>());
  });
  if (worst != rows.end()) {
    report["verdict"] = worst->at("verdict");
    report["exit_code"] = worst->at("exit_code");
  }
  report["total"] = total_of(rows, sort);
  report["runs"] = rows;
  return report;
}

FleetTable fleet_table(const nlohmann::ordered_json& report) {
  const FleetJson& total = report.at("total");
  FleetTable table{.head = {"RUN", "VERDICT", "STEP", "STEPS/S", "LOSS"}, .rows = {}};
  std::vector<std::string> metrics;
  for (const auto& [metric, value] : total.at("best").items()) {
    metrics.push_back(metric);
    table.head.push_back("BEST " + metric);
  }
  for (const char* name : {"ATTEMPTS", "AT RISK", "LAST SIGN"}) table.head.emplace_back(name);
  const auto add_row = [&](const FleetJson& row, const std::string& name, const std::string& verdict) {
    std::vector<std::string> cells{name, verdict, steps_text(row), number_text(row, "steps_per_second"),
                                   number_text(row, "loss")};
    for (const std::string& metric : metrics) {
      cells.push_back(number_text(part_of(row, "best"), metric.c_str()));
    }
    cells.push_back(count_text(row, "attempts"));
    cells.push_back(seconds_text(figure_in(part_of(row, "risk"), "s")));
    cells.push_back(seconds_text(figure_in(row, "last_sign_s")));
    table.rows.push_back(std::move(cells));
  };
  for (const FleetJson& row : report.at("runs")) {
    add_row(row, row.at("name").get<std::string>(), row.at("verdict").get<std::string>());
  }
  add_row(total, runs_text(total), verdicts_text(total));
  return table;
}

std::vector<std::string> fleet_screen(const nlohmann::ordered_json& report) {
  // Without a total it is not there, or hangs.
  if (!report.contains("total") || report.at("runs").empty()) {
    return {printable(report.at("directory").get<std::string>(), 400) + ": " +
            printable(report.at("reason").get<std::string>(), 400)};
  }
  const FleetTable shown = fleet_table(report);
  std::vector<Table::Align> columns(shown.head.size(), Table::Align::right);
  columns[0] = columns[1] = Table::Align::left;
  Table table(columns);
  table.add(shown.head);
  for (const std::vector<std::string>& row : shown.rows) table.add(row);
  std::stringstream text;
  table.print(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  for (const FleetJson& row : report.at("runs")) {
    const auto reason = row.at("reason").get<std::string>();
    // An interrupted run goes on by itself.
    if (severity(row.at("exit_code").get<int>()) < 2 || reason.empty()) continue;
    lines.push_back(printable(row.at("name").get<std::string>(), 100) + ": " + printable(reason, 400));
  }
  if (const auto reason = report.at("reason").get<std::string>(); !reason.empty()) lines.push_back(reason);
  return lines;
}

std::string fleet_line(const nlohmann::ordered_json& report) {
  if (!report.contains("total") || report.at("runs").empty()) return fleet_screen(report).front();
  const FleetJson& total = report.at("total");
  return runs_text(total) + ": " + verdicts_text(total) + "; step " + steps_text(total) + "; " +
         number_text(total, "steps_per_second") + " steps/s";
}

bool fleet_is_final(const nlohmann::ordered_json& report) {
  if (!report.contains("total") || report.at("runs").empty()) return false;
  const FleetJson& runs = report.at("runs");
  return std::all_of(runs.begin(), runs.end(), [](const FleetJson& row) {
    return row.at("verdict") == "complete" || row.at("verdict") == "refused";
  });
}

}}  // namespace holdfast::v0_2
