#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/seconds.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/new_file.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/cli/report/fleet_report.h"
#include "holdfast/cli/report/html_report.h"
#include "holdfast/cli/report/timeline.h"
#include "holdfast/cli/run/run_view.h"
#include "holdfast/ledger/goodput.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct ReportRequest {
  std::filesystem::path directory;
  bool json = false;
  std::filesystem::path svg;
  std::filesystem::path html;
  bool all = false;
  std::string sort;
};

std::string counted(std::int64_t count, const char* one, const char* many) {
  return format_count(count) + ' ' + (count == 1 ? one : many);
}

std::vector<Duration> leads(const RunAccount& run) {
  std::vector<Duration> all;
  for (const LifeAccount& life : run.lives) {
    if (life.lead) all.push_back(*life.lead);
  }
  // The summary shows the shortest and the one in the middle.
  std::sort(all.begin(), all.end());
  return all;
}

void print_summary(const RunAccount& run) {
  using enum Table::Align;
  const TimeSplit& time = run.time;
  Table table({left, right, right});
  const auto add = [&](const char* what, Duration part) {
    table.add({what, share_text(part, time.up), format_duration(part)});
  };
  add("goodput: steps that count", time.kept);
  add("start-up", time.startup);
  add("steps computed again, or lost", time.lost);
  add("waits for saves", time.waited);
  add("paused, waiting for the end", time.paused);
  add("last saves and leaving", time.ending);
  if (time.unknown >= std::chrono::seconds(1)) add("not known", time.unknown);
  table.add({"up time", "", format_duration(time.up)});
  table.print(std::cout, 2);
  std::cout << '\n';

  std::cout << "  " << counted(run.interruptions, "interruption", "interruptions");
  if (run.interruptions > 0) {
    std::cout << ", " << run.missed << " without a notice ("
              << format_log("{:.1f} %",
                            {100 * static_cast<double>(run.missed) / static_cast<double>(run.interruptions)})
              << " missed)";
  }
  if (const auto all = leads(run); !all.empty()) {
    std::cout << "; lead time " << format_duration(all.front()) << " at least, "
              << format_duration(all[all.size() / 2]) << " in the middle";
  }
  std::cout << "\n  unused before deadlines: " << format_duration(run.unused_grace)
            << "\n  at risk, at the last record: " << counted(run.risk_steps, "step", "steps") << ", "
            << format_duration(run.risk);
  if (run.most_risk > Duration::zero()) std::cout << "; at most " << format_duration(run.most_risk);
  std::cout << '\n';
  if (run.never_started > 0) {
    std::cout << "  " << counted(run.never_started, "attempt", "attempts") << " never came to training\n";
  }
  if (run.lost_lines > 0 || run.skipped_lines > 0) {
    std::cout << "  the ledgers are incomplete: " << counted(run.lost_lines, "line", "lines") << " lost, "
              << format_count(run.skipped_lines) << " not understood\n";
  }
}

std::string notice_text(const LifeAccount& life) {
  if (life.lead) return format_duration(*life.lead) + " ahead";
  return life.noticed ? "yes" : "-";
}

void print_lives(const RunAccount& run) {
  using enum Table::Align;
  Table table({right, left, right, right, right, right, right, right, left, left});
  table.add({"ATTEMPT", "BEGAN", "UP", "START-UP", "FROM", "STEPS", "LOST", "SAVES", "NOTICE", "END"});
  for (const LifeAccount& life : run.lives) {
    std::string end = word_of(life.ending);
    if (!life.reason.empty()) end += " (" + printable(life.reason, 80) + ")";
    table.add({std::to_string(life.attempt), format_utc(life.began), format_duration(life.time.up),
               format_duration(life.time.startup), format_count(life.from_step),
               format_count(life.last_step - life.from_step), format_count(life.last_step - life.kept_step),
               format_count(life.saves), notice_text(life), end});
  }
  std::cout << '\n';
  table.print(std::cout);
}

Json json_of(const TimeSplit& time) {
  return {{"up_s", in_seconds(time.up)},         {"startup_s", in_seconds(time.startup)},
          {"kept_s", in_seconds(time.kept)},     {"lost_s", in_seconds(time.lost)},
          {"waited_s", in_seconds(time.waited)}, {"paused_s", in_seconds(time.paused)},
          {"ending_s", in_seconds(time.ending)}, {"unknown_s", in_seconds(time.unknown)}};
}

Json json_of(const LifeAccount& life) {
  Json json{{"attempt", life.attempt},
            {"began", format_utc(life.began)},
            {"ending", word_of(life.ending)},
            {"exit_code", life.exit_code},
            {"reason", printable(life.reason, 1000)},
            {"from_step", life.from_step},
            {"last_step", life.last_step},
            {"kept_step", life.kept_step},
            {"saves", life.saves},
            {"saved_bytes", life.bytes},
            {"noticed", life.noticed},
            {"lead_s", nullptr},
            {"unused_grace_s", in_seconds(life.unused_grace)},
            {"blind_s", in_seconds(life.blind)},
            {"time", json_of(life.time)}};
  if (life.lead) json["lead_s"] = in_seconds(*life.lead);
  return json;
}

void print_account_as_json(const RunAccount& run, const std::vector<std::string>& stalls) {
  Json lives = Json::array();
  for (const LifeAccount& life : run.lives) lives.push_back(json_of(life));
  print_json({{"goodput", run.goodput},
              {"time", json_of(run.time)},
              {"interruptions", run.interruptions},
              {"missed", run.missed},
              {"unused_grace_s", in_seconds(run.unused_grace)},
              {"risk_steps", run.risk_steps},
              {"risk_s", in_seconds(run.risk)},
              {"most_risk_s", in_seconds(run.most_risk)},
              {"never_started", run.never_started},
              {"skipped_lines", run.skipped_lines},
              {"lost_lines", run.lost_lines},
              {"attempts", lives},
              {"stalls", stalls}});
}

// A full disk leaves the old one.
void write_whole(const std::filesystem::path& target, const std::string& text) {
  const auto directory = FileSystem::real().open_directory(folder_of(target), false);
  if (!directory) throw IoError("write", target.native(), ENOENT);
  NewFile made(*directory, target.filename().string());
  made.file().write_at(std::as_bytes(std::span(text)), 0);
  made.publish(/*replace=*/true);
}

// Only the run's own files belong into a run directory.
void check_outside(const std::filesystem::path& run_directory, const char* option,
                   const std::filesystem::path& target) {
  std::error_code error;
  // Links are followed, so that none leads into the run directory unseen.
  // Weakly, because the target itself need not exist yet.
  const auto file_name = std::filesystem::weakly_canonical(std::filesystem::absolute(target), error);
  const auto run = std::filesystem::canonical(run_directory, error);
  const bool within =
      std::mismatch(run.begin(), run.end(), file_name.begin(), file_name.end()).first == run.end();
  if (!run.empty() && within) {
    throw UsageError(std::string(option) + " " + target.native() +
                     " lies in the run directory; write it elsewhere");
  }
}

void write_picture(const std::filesystem::path& target, const std::string& text) {
  std::error_code error;
  const auto kind = std::filesystem::symlink_status(target, error).type();
  if (kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::regular) {
    return write_whole(target, text);
  }
  // A link or a device, such as /dev/stdout, stays what it is.
  // A stream gives no reason of its own, but the system call below it may leave one.
  errno = 0;
  std::ofstream file(target, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw IoError("write", target.native(), errno == 0 ? EIO : errno);
}

// The page of a sweep. Its table on a terminal is that of `status --all`.
int report_all(const ReportRequest& options) {
  if (options.html.empty()) {
    throw UsageError("--all writes a page: name it with --html; holdfast status --all prints the table");
  }
  const auto report = fleet_report(options.directory, {}, parse_sort(options.sort));
  for (const auto& row : report.at("runs")) {
    check_outside(options.directory / row.at("name").get<std::string>(), "--html", options.html);
  }
  write_picture(options.html, html_fleet_report(options.directory, report));
  std::cout << fleet_line(report) << '\n';
  return 0;
}

int run_report(const ReportRequest& options) {
  if (options.all) return report_all(options);
  if (!options.sort.empty()) throw UsageError("--sort needs --all: one run is one row");
  const auto directory = open_run_directory(options.directory);
  const std::vector<LedgerLife> lives = read_lives(*directory);
  const RunAccount account = account_for(lives);
  if (!options.svg.empty()) {
    check_outside(options.directory, "--svg", options.svg);
    const std::string title = printable(options.directory.string(), 100) + ": goodput " +
                              share_text(account.time.kept, account.time.up);
    write_picture(options.svg, timeline_picture(lives, account, title).document());
  }
  if (!options.html.empty()) {
    check_outside(options.directory, "--html", options.html);
    const std::string name = printable(options.directory.string(), 100);
    write_picture(options.html, html_report(name, *directory, lives, account));
  }
  const std::vector<std::string> stalls = stall_files(*directory);
  if (options.json) {
    print_account_as_json(account, stalls);
  } else if (account.lives.empty()) {
    std::cout << "no attempt has trained in " << shown(options.directory) << '\n';
  } else {
    std::cout << shown(options.directory) << ": "
              << counted(static_cast<std::int64_t>(account.lives.size()), "life", "lives") << "\n\n";
    print_summary(account);
    print_lives(account);
  }
  if (!options.json) {
    if (!stalls.empty()) std::cout << '\n';
    for (const std::string& file : stalls) std::cout << "an attempt hung: " << file << '\n';
  }
  return 0;
}

constexpr char kReportFooter[] =
    R"(Goodput is the time of the steps that count, as a share of the time in which a process lived.

END is one of:
  complete      the run reached its final step
  interrupted   the attempt saved and left; resumable
  failed        the attempt ended with an error
  superseded    a newer attempt took the run over
  crashed       no last line; the next attempt ran on the same machine
  vanished      no last line; the next attempt ran on another machine
  running?      the newest attempt: it is alive, or it ended without a last line

Example:
  holdfast report /mnt/ckpt/run1 --html run1.html
  holdfast report --all /mnt/ckpt --html sweep.html)";

}  // namespace

void add_report(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ReportRequest>();
  CLI::App* const command =
      app.add_subcommand("report", "Report where a run's time went, over all its attempts");
  command->add_option("DIR", options->directory, "the run directory")->required();
  CLI::Option* const json =
      command->add_flag("--json", options->json, "print one JSON object instead of tables");
  CLI::Option* const svg =
      command->add_option("--svg", options->svg, "draw the attempts along a time axis into this file")
          ->type_name("FILE");
  command
      ->add_option("--html", options->html,
                   "write one page into this file: loss, accuracy, throughput, saves, attempts, notices")
      ->type_name("FILE");
  command
      ->add_flag(
          "--all", options->all,
          "DIR is the root of a sweep: one page with a table of the runs in it, and the curves of their "
          "losses and metrics one over another. Needs --html")
      ->excludes(json)
      ->excludes(svg);
  command
      ->add_option("--sort", options->sort,
                   "with --all: the best run by this metric first; NAME:min or NAME:max names what is best")
      ->type_name("METRIC");
  command->footer(kReportFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_report(*options); }; });
}

}}  // namespace holdfast::v0_2
