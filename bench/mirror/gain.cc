// Seconds at risk: how old the newest safe state is, with one tier and with two.
#include <algorithm>

#include "disk.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/report/chart.h"
#include "holdfast/planning/interval_planner.h"
#include "parts.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kQuickWrite = 1e9;  // bytes a second, of the quick disk in the model

// Seconds at risk of a run whose machine vanishes at any moment: the mean age of the newest state there.
struct Model {
  double every = 0;       // between two saves on the quick disk
  double every_slow = 0;  // and on the slow volume
  double one_tier = 0;
  double here = 0;  // two tiers: if the disk survives
  double home = 0;  // if it does not
};

// The save interval is the planner's, with the hazard of public traces and a stall of 50 ms (docs/figures.md).
Model model_of(double bytes, double limit) {
  const auto planned = [](double write) {
    const auto seconds = [](double value) { return Duration(static_cast<std::int64_t>(value * 1e9)); };
    const Duration interval =
        plan_interval({.stall = seconds(0.05), .write = seconds(write)}, hazard_of({}), {});
    return std::chrono::duration<double>(interval).count();
  };
  const double slow = bytes / (limit * 1e6);
  const double quick = bytes / kQuickWrite;
  const double every = planned(quick);
  const double every_slow = planned(slow);
  // The newest state counts `latency` after it was staged; the next one `period` later.
  const auto age = [](double latency, double period) { return latency + period / 2; };
  const double read_back = bytes / kQuickWrite;
  return {.every = every,
          .every_slow = every_slow,
          .one_tier = age(slow, every_slow),
          .here = age(quick, every),
          .home = age(quick + slow + read_back, std::max(every, slow + read_back))};
}

}  // namespace

void measure_gain(const Options& options, Report& report) {
  const auto run = [&](double limit, bool two_tiers, double every) {
    const TemporaryFolder folder(options.directory);
    const std::string run = folder.path() / "run";
    fs::create_directory(run);
    std::optional<MeasuredRun> mirror;
    if (two_tiers) {
      mirror.emplace(mirror_command(run, folder.path() / "home", limit), folder.path() / "mirror.log");
    }
    Words words = {"--child-train",   run,
                   "--child-state",   std::to_string(options.large),
                   "--child-every",   std::to_string(every),
                   "--child-seconds", std::to_string(options.gain)};
    if (!two_tiers) words.insert(words.end(), {"--child-limit", number(limit)});
    const auto result = trained(words, folder.path() / "train.log");
    if (mirror) mirror->stop();
    return result;
  };
  for (const double limit : options.limits) {
    if (limit <= 0) continue;
    const double bytes = static_cast<double>(options.large);
    report.section("seconds at risk, a state of " + format_bytes(options.large) + ", a safe volume of " +
                   name_of(limit));
    const Model model = model_of(bytes, limit);
    const std::string key = "gain." + key_of(limit);
    report.add(
        {.key = key + ".model.one", .what = "model: one slow tier", .value = model.one_tier, .unit = "s"});
    report.add({.key = key + ".model.here",
                .what = "model: two tiers, the quick disk survives",
                .value = model.here,
                .unit = "s"});
    report.add({.key = key + ".model.home",
                .what = "model: two tiers, the machine vanishes",
                .value = model.home,
                .unit = "s"});
    if (options.gain <= 0) {
      report.leave_out(key + ".measured", "--gain-seconds 0 was given");
      continue;
    }
    // A short run must save a few times, too.
    const double longest = options.gain / 3;
    const auto one = run(limit, false, std::min(model.every_slow, longest));
    const auto two = run(limit, true, std::min(model.every, longest));
    const auto measured = [&](const char* which, const char* what, const nlohmann::json& age) {
      if (age.is_null()) {
        report.leave_out(key + ".measured." + which,
                         "no copy was finished in " + number(options.gain) + " s");
        return;
      }
      report.add({.key = key + ".measured." + which,
                  .what = std::string("measured: ") + what,
                  .value = age["mean_seconds"].get<double>(),
                  .unit = "s",
                  .note = format_log("at worst {:.1f} s", {age["worst_seconds"].get<double>()})});
    };
    measured("one", "one slow tier", one["at_risk_here"]);
    measured("here", "two tiers, the quick disk survives", two["at_risk_here"]);
    measured("home", "two tiers, the machine vanishes", two["at_risk_home"]);
  }
}

std::string chart_of_gain(const Options& options, const Report& report) {
  BarChart chart;
  chart.title = "Seconds at risk: how old the newest safe state is, on average";
  chart.subtitle = "a state of " + format_bytes(options.large) + "; shorter is better";
  chart.nothing = "nothing was measured";
  for (const double limit : options.limits) {
    if (limit <= 0) continue;
    BarGroup group;
    group.title = "a safe volume of " + name_of(limit);
    for (const Row& row : report.rows()) {
      if (!row.key.starts_with("gain." + key_of(limit) + ".")) continue;
      const char* const classes = row.key.ends_with(".one")    ? "second-fill"
                                  : row.key.ends_with(".home") ? "third-fill"
                                                               : "first-fill";
      group.bars.push_back({.name = row.what,
                            .length = row.value,
                            .value = format_log("{:.1f} s", {row.value}),
                            .classes = classes});
      group.full = std::max(group.full, row.value);
    }
    if (!group.bars.empty()) chart.groups.push_back(std::move(group));
  }
  return bar_chart(chart).document();
}

}  // namespace holdfast::bench
