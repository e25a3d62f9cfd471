#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/child/limited_read.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/output/color.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/report/fleet_report.h"
#include "holdfast/cli/report/status_report.h"
#include "holdfast/cli/report/status_screen.h"
#include "holdfast/cli/run/run_view.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kPatienceWithVolume = std::chrono::seconds(2);  // with a volume that hangs
constexpr Duration kPatienceWithRuns = std::chrono::seconds(30);   // the same, for all ledgers of many runs
constexpr Duration kRedrawScreen = std::chrono::seconds(1);        // at a terminal
constexpr Duration kRedrawRuns = std::chrono::seconds(5);          // each run tells its step every 10 s
constexpr Duration kLineInterval = std::chrono::seconds(10);  // elsewhere, while nothing important changes

struct StatusRequest {
  std::filesystem::path directory;
  std::string max_age = "15min";
  std::string max_unsaved;
  std::string color = "auto";
  bool json = false;
  bool watch = false;
  bool all = false;
  std::string sort;
};

// With the members that every report has, so that no reader needs a case of its own for it.
Json trouble(const StatusRequest& options, const char* verdict, const std::string& what, int code) {
  return {{"schema", kStatusSchema},
          {"directory", options.directory.string()},
          {"time", format_utc(Clock::real().wall_now())},
          {"verdict", verdict},
          {"exit_code", code},
          {"phase", "unknown"},
          {"reason", what}};
}

class Look {
 public:
  explicit Look(const StatusRequest& options) : options_(options) {
    limits_.max_age = duration_of("--max-age", options.max_age);
    if (!options.max_unsaved.empty()) limits_.max_unsaved = duration_of("--max-unsaved", options.max_unsaved);
    sort_ = parse_sort(options.sort);
  }

  Json take() {
    constexpr auto kUnreadable = static_cast<int>(ExitCode::unreadable);
    const Duration patience = options_.all ? kPatienceWithRuns : kPatienceWithVolume;
    const auto text = reading_.run(patience, [this]() -> std::string {
      try {
        return dump_json(options_.all ? fleet_report(options_.directory, limits_, sort_)
                                      : status_report(look_at_run(options_.directory), limits_));
      } catch (const std::exception& error) {
        // An exception must not leave the child: it would look like a process that died, without a reason.
        return dump_json(trouble(options_, "unreadable", what_of(error), kUnreadable));
      }
    });
    if (!text) {
      return trouble(options_, "hangs",
                     "the directory has not answered for " +
                         std::to_string(patience / std::chrono::seconds(1)) + "s: its volume hangs",
                     kUnreadable);
    }
    Json report = Json::parse(*text, nullptr, false);
    if (report.is_object()) return report;
    return trouble(options_, "unreadable", "the process that read the directory died", kUnreadable);
  }

 private:
  const StatusRequest& options_;
  StatusLimits limits_;
  SortBy sort_;
  LimitedRead reading_;
};

int code_of(const Json& report) { return report.at("exit_code").get<int>(); }

struct Terminal {
  std::size_t width = 1000;
  std::size_t height = 1000;
};

Terminal terminal() {
  winsize size{};
  // Sizes that small are no real terminal's: nothing is cut.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20 || size.ws_row < 3) return {};
  return {.width = size.ws_col, .height = size.ws_row};
}

std::vector<std::string> lines_for(const StatusRequest& options, const Json& report, std::size_t width) {
  if (!options.all) return status_screen(report, paint_for(options.color), width);
  std::vector<std::string> lines = fleet_screen(report);
  for (std::string& line : lines) line = cut_to_width(line, width);
  return lines;
}

void print_screen(const StatusRequest& options, const Json& report) {
  const bool cut = isatty(STDOUT_FILENO) == 1 && !options.all;  // a table is read by wrapping, too
  const std::size_t width = cut ? terminal().width : Terminal{}.width;
  for (const std::string& line : lines_for(options, report, width)) std::cout << line << '\n';
}

// Overwrites the screen before it in place: each line is drawn over the old one, and only then the rest of it
// is erased. One write shows all, so nothing flickers, and the last screen stays when the user leaves.
class Redrawn {
 public:
  explicit Redrawn(const StatusRequest& options) : options_(options) {}

  void draw(const Json& report) {
    const Terminal size = terminal();
    // A line that fills the last column makes some terminals wrap.
    auto lines = lines_for(options_, report, size.width - 1);
    // A screen as high as the terminal would scroll, and the next one would begin at the wrong line.
    if (lines.size() >= size.height) lines.resize(size.height - 1);
    std::string text;
    if (drawn_ > 0) text = "\x1b[" + std::to_string(drawn_) + "F";
    for (const std::string& line : lines) text += line + "\x1b[K\n";
    text += "\x1b[J";
    drawn_ = lines.size();
    std::cout << text << std::flush;
  }

 private:
  const StatusRequest& options_;
  std::size_t drawn_ = 0;
};

bool is_final(const Json& report) {
  if (report.contains("runs")) return fleet_is_final(report);
  // An interrupted or failed run is not final: its next attempt may begin at any moment.
  return report.at("verdict") == "complete" || report.at("verdict") == "refused";
}

// What must be told at once.
std::string news_in(const Json& report) {
  if (report.contains("total")) return report.at("total").at("verdicts").dump();
  return report.at("verdict").get<std::string>() + report.at("phase").get<std::string>();
}

std::string line_for(const StatusRequest& options, const Json& report) {
  if (options.json) return dump_json(report, -1);
  return options.all ? fleet_line(report) : status_line(report);
}

int watch(const StatusRequest& options) {
  Look look(options);
  const bool redraws = isatty(STDOUT_FILENO) == 1 && !options.json;
  Redrawn screen(options);
  std::string told;
  SteadyTime next_line{};
  while (true) {
    const Json report = look.take();
    const std::string news = news_in(report);
    const SteadyTime now = Clock::real().now();
    if (redraws) {
      screen.draw(report);
    } else if (news != told || now >= next_line) {
      told = news;
      next_line = now + kLineInterval;
      // Flushed at once, because the reader of a pipe waits for this line.
      std::cout << line_for(options, report) << std::endl;
    }
    // The reader is gone, or nothing can change any more.
    if (!std::cout || is_final(report)) return code_of(report);
    Clock::real().sleep_for(options.all ? kRedrawRuns : kRedrawScreen);
  }
}

int run_status(const StatusRequest& options) {
  if (!options.sort.empty() && !options.all) throw UsageError("--sort needs --all: one run is one row");
  if (options.watch) return watch(options);
  const Json report = Look(options).take();
  if (options.json) {
    print_json(report);
  } else {
    print_screen(options, report);
  }
  return code_of(report);
}

constexpr char kStatusFooter[] =
    R"(It never writes, and waits at most 2 s for a volume that hangs. The process that trains tells every 10 s what it does,
on a thread of its own, so a training that stands still differs from a process that is gone.

Exit code: 0 healthy or complete; 1 needs a look: no sign of life or no new step for --max-age, its process is gone,
its saves fail, it ended with an error, or nobody has trained there; 2 the directory cannot be read, or hangs; 75 interrupted,
resumable; 78 refused: the newest attempt was, or the next start would be.

With --all: a row for each folder of DIR in which somebody has trained, and a last row that adds up. Exit code: that
of the worst verdict, in the order 0, 75, 1, 2, 78. A metric is best if it is high; by their names, losses, errors,
perplexities and times if they are low. The columns are explained in docs/sweeps.md.

Until the next attempt has claimed the directory, the answer is about the one before it.

Examples:
  holdfast status /mnt/ckpt/run1 --watch
  holdfast status --all /mnt/ckpt --sort test_accuracy
  holdfast status /mnt/ckpt/run1 --max-age 15m >/dev/null || alert

For a probe that restarts the training, add --max-unsaved 0s, and restart for 1 alone: neither a full disk nor a volume
that hangs is a reason to lose what memory holds.)";

}  // namespace

void add_status(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<StatusRequest>();
  CLI::App* const command =
      app.add_subcommand("status", "Show on one screen how a run is, with exit codes for probes");
  command->add_option("DIR", options->directory, "the run directory")->required();
  add_time(
      *command, "--max-age", options->max_age,
      "exit with 1 without a sign of life, or without a new step, for this long; evaluations, pauses and "
      "the last save need no new step");
  command
      ->add_option("--max-unsaved", options->max_unsaved,
                   "exit with 1 if this much work, as time, is in no checkpoint; 0s: never (default: three "
                   "times the save interval while saves fail, otherwise no limit)")
      ->type_name("TIME");
  command->add_flag(
      "--watch", options->watch,
      "look again every second until the run is complete or refused; elsewhere than at a terminal "
      "print a line every 10 s, and when something changes");
  command->add_flag("--json", options->json, "print one JSON object; with --watch one a line");
  command->add_flag("--all", options->all,
                    "DIR is the root of a sweep: a table with a row for each run directory in it");
  command
      ->add_option("--sort", options->sort,
                   "with --all: the best run by this metric first; NAME:min or NAME:max names what is best")
      ->type_name("METRIC");
  add_color(*command, options->color);
  command->footer(kStatusFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_status(*options); }; });
}

}}  // namespace holdfast::v0_2
