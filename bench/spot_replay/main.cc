// What preemptions cost: machine lives replayed through the real deadline planner and save policy, beside
// what trainers do without them.
//
//   bench_spot_replay                        1,000 lives drawn with the quantiles of public traces
//   bench_spot_replay lives.csv --commit 8s  those of a file: seconds, one life a line
//
// Nothing is measured on this machine; the same options print the same table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/output/table.h"
#include "lives.h"
#include "replay.h"

namespace holdfast::bench { namespace {

struct Options {
  std::string csv;
  std::int64_t draw = 1000;
  std::string step = "1s";
  std::string startup = "3min";
  std::string commit = "20s";
  std::string stall = "200ms";
  std::string notice = "120s";
  std::string every = "auto";
  ReplayOptions replay;
};

Duration duration_of(const char* option, const std::string& text, bool positive) {
  const auto time = parse_duration(text);
  if (!time || (positive && *time <= Duration::zero())) {
    throw UsageError(std::string(option) + " " + text + ": give a time such as 20s or 3min");
  }
  return *time;
}

double share_of(const char* option, double value, bool below_one) {
  if (value >= 0 && (below_one ? value < 1 : value <= 1)) return value;
  throw UsageError(std::string(option) + " " + format_number(value) + ": give a share such as 0.05");
}

double minutes(Duration time) { return std::chrono::duration<double>(time).count() / 60; }

void print_lives(const std::vector<Duration>& lives, const Options& options) {
  std::vector<Duration> sorted = lives;
  std::sort(sorted.begin(), sorted.end());
  double sum = 0;
  for (const Duration life : lives) sum += minutes(life);
  const auto count = static_cast<double>(lives.size());
  const auto young = std::lower_bound(sorted.begin(), sorted.end(), Duration(std::chrono::minutes(10)));
  std::cout << "spot_replay: " << format_count(static_cast<std::int64_t>(lives.size())) << " machine lives "
            << (options.csv.empty() ? "drawn (seed " + std::to_string(options.replay.seed) + ")"
                                    : "of " + options.csv)
            << format_log(": median {:.0f} min, {:.0f} % under 10 min, mean {:.0f} min\n",
                          {minutes(sorted[sorted.size() / 2]),
                           100 * static_cast<double>(young - sorted.begin()) / count, sum / count})
            << "  step " << options.step << ", start-up " << options.startup << ", commit " << options.commit
            << " (training waits " << options.stall << "), notice " << options.notice << " ahead"
            << format_log(", {:.1f} % of lives without one\n\n", {100 * options.replay.missed});
}

void print_table(const std::vector<Replayed>& rows) {
  using enum Table::Align;
  Table table({left, right, right, right, right, right, right});
  table.add({"", "LOST/PREEMPTION", "START-UP", "THE REST", "PAID TWICE", "GOODPUT", "SAVES/LIFE"});
  for (const Replayed& row : rows) {
    const double count = static_cast<double>(row.preemptions);
    const double startup = minutes(row.startup) / count;
    table.add({row.what, format_log("{:.1f} min", {row.lost_minutes()}), format_log("{:.1f} min", {startup}),
               format_log("{:.1f} min", {row.lost_minutes() - startup}),
               format_log("{:.1f} min", {row.twice_minutes()}), format_log("{:.1f} %", {100 * row.goodput()}),
               format_log("{:.1f}", {static_cast<double>(row.saves) / count})});
  }
  table.print(std::cout);
  std::cout << "\nof " << format_count(rows.front().noticed) << " lives with a notice, in "
            << format_count(rows.front().unfinished) << " a commit after it was not over at the end; at most "
            << format_count(rows.front().most_steps_lost) << " steps of one were lost\n";
}

int run(Options& options) {
  ReplayOptions& replay = options.replay;
  replay.step = duration_of("--step", options.step, true);
  replay.startup = duration_of("--startup", options.startup, false);
  replay.commit = duration_of("--commit", options.commit, true);
  replay.stall = duration_of("--stall", options.stall, false);
  replay.notice = duration_of("--notice", options.notice, false);
  if (options.every != "auto") replay.every = duration_of("--every", options.every, true);
  share_of("--missed", replay.missed, false);
  share_of("--spread", replay.commit_spread, true);
  if (options.draw < 1 || options.draw > 1'000'000) throw UsageError("--draw: from 1 to 1000000 lives");
  const std::vector<Duration> lives =
      options.csv.empty() ? draw_machine_lives(static_cast<std::size_t>(options.draw), replay.seed)
                          : read_machine_lives(std::filesystem::path(options.csv));
  print_lives(lives, options);
  using std::chrono::minutes;
  print_table({replay_holdfast(lives, replay), replay_standby(lives, replay, StandBy::on_notice),
               replay_standby(lives, replay, StandBy::on_rebalance),
               replay_standby(lives, replay, StandBy::always),
               replay_epochs(lives, replay, minutes(60), true, "hourly epoch, sleeps on notice"),
               replay_epochs(lives, replay, minutes(30), false, "30-minute epoch"),
               replay_epochs(lives, replay, minutes(10), false, "every 10 min, no notice heard")});
  return 0;
}

int run_program(int count, char** arguments) {
  CLI::App app{
      "Replays machine lives through Holdfast's deadline planner and save policy, beside what trainers do "
      "without them."};
  Options options;
  app.add_option("LIVES.csv", options.csv, "seconds, one life a line; without it lives are drawn");
  app.add_option("--draw", options.draw, "how many")->capture_default_str();
  app.add_option("--seed", options.replay.seed, "of all that chance decides")->capture_default_str();
  app.add_option("--step", options.step, "time of a step")->capture_default_str();
  app.add_option("--startup", options.startup, "from a machine's begin to its first step")
      ->capture_default_str();
  app.add_option("--commit", options.commit, "a save, until it is durable")->capture_default_str();
  app.add_option("--spread", options.replay.commit_spread, "commits take as much more or less, as a share")
      ->capture_default_str();
  app.add_option("--stall", options.stall, "of a save, the training waits")->capture_default_str();
  app.add_option("--notice", options.notice, "how long before the end it comes")->capture_default_str();
  app.add_option("--missed", options.replay.missed, "share of lives without a notice")->capture_default_str();
  app.add_option("--every", options.every, "Holdfast's save interval, or auto")->capture_default_str();
  app.footer("Example:\n  bench_spot_replay --draw 202 --seed 7 --missed 0.1");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  try {
    return run(options);
  } catch (const Error& error) {
    std::cerr << "spot_replay: " << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
}

}}  // namespace holdfast::bench

int main(int count, char** arguments) { return holdfast::bench::run_program(count, arguments); }
