// What a mirror takes from the training beside it.
#include <algorithm>
#include <thread>

#include "../shared/median.h"
#include "disk.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "parts.h"

namespace holdfast::bench {

namespace fs = std::filesystem;

// A window with one copy in it, and one without, in turns. All cores compute.
void measure_training(const Options& options, Report& report) {
  const Disk disk(options.directory, options.bytes);
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const std::string log = disk.log();
  const auto window = [&](const std::string& run, double every) {
    Words words = {"--child-train",   run,
                   "--child-seconds", std::to_string(options.window),
                   "--child-threads", std::to_string(cores)};
    if (!run.empty()) {
      words.insert(words.end(),
                   {"--child-state", std::to_string(options.bytes), "--child-every", std::to_string(every)});
    }
    return trained(words, log + ".train");
  };
  report.section("training beside a copy of " + format_bytes(fs::file_size(disk.file())) + ", " +
                 std::to_string(cores) + " cores computing");
  std::vector<double> lost;
  std::vector<double> processor;
  for (int i = 0; i < options.pairs; ++i) {
    std::vector<double> rates(2);
    for (const int with : {i % 2, 1 - i % 2}) {
      disk.settle();
      std::optional<MeasuredRun> mirror;
      if (with == 1) {
        Words words = mirror_command(disk.run(), disk.home(), 0);
        words.emplace_back("--once");
        mirror.emplace(words, log);
      }
      const auto result = window("", 0);
      rates[static_cast<std::size_t>(with)] = result["steps"].get<double>() / result["seconds"].get<double>();
      if (mirror) processor.push_back(mirror->wait().processor_seconds);
    }
    lost.push_back((1 - rates[1] / rates[0]) * options.window / 60 * 100);
  }
  report.add({.key = "training.lost",
              .what = "training lost at one copy a minute, by counted steps",
              .value = median(lost),
              .unit = "%",
              .at_most = 0.5,
              .samples = lost,
              .note = format_log("windows of {} s", {options.window})});
  report.add({.key = "training.processor",
              .what = "the mirror's processor time at one copy a minute, of all cores",
              .value = median(processor) / 60 / cores * 100,
              .unit = "%",
              .at_most = 0.5,
              .samples = processor});

  // How long a save blocks the training, with a mirror beside it and without, in turns. Saves come so often that a copy
  // always runs.
  for (const double limit : options.limits) {
    std::vector<double> alone;
    std::vector<double> beside;
    for (int i = 0; i < std::max(1, options.pairs / 2); ++i) {
      for (const int with : {i % 2, 1 - i % 2}) {
        const std::string run = fs::path(disk.run()).parent_path() / "saves";
        fs::remove_all(run);
        fs::remove_all(disk.home());
        std::optional<MeasuredRun> mirror;
        if (with == 1) mirror.emplace(mirror_command(run, disk.home(), limit), log);
        const auto result = window(run, options.window / 6);
        for (const auto& one : result["blocked_seconds"])
          (with == 1 ? beside : alone).push_back(one.get<double>());
        if (mirror) mirror->stop();
      }
    }
    report.add({.key = "training.blocked." + key_of(limit),
                .what = "a save blocks the training, with a mirror against without, " + name_of(limit),
                .value = median(beside) / median(alone),
                .unit = "times",
                .at_most = 1.1,
                .samples = beside,
                .note = format_log("{:.1f} ms and {:.1f} ms", {median(beside) * 1e3, median(alone) * 1e3})});
  }
}

}  // namespace holdfast::bench
