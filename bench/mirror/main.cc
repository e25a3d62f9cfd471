// What a mirror costs and gains, measured: see --help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "../shared/program.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "parts.h"
#include "trainer.h"

namespace holdfast::bench { namespace {

constexpr char kHelp[] =
    R"(Measures what `holdfast mirror` costs beside a training, and what two tiers gain. Prints each figure with its
goal, and writes OUTPUT.json and OUTPUT.svg.

parts (--only):
  copy      one copy into a directory against cp + fsync, and into a store (rclone's local one) against `rclone copyto`
            alone: speed, processor time of the mirror itself against reading and hashing once, peak memory
  memory    processor time and peak memory at a large checkpoint (--large)
  training  steps of fixed arithmetic on all cores, with a copy beside them and without, in turns; how long a save
            blocks the training, with a mirror and without
  gain      seconds at risk: the mean age of the newest safe state, with one slow tier and with two. The model takes the
            save interval of the planner and a quick disk of 1 GB/s; runs with these intervals are measured (--gain-seconds)

How a slow volume is made (--limits): each program paces its own writes, the mirror by --limit, rclone by --bwlimit, cp and
the trainer by this bench. Reads are not slowed. About 25 minutes with the defaults, 16 of them the part gain, on a
quiet machine; 10 GB of disk.
)";

struct Child {
  TrainerOptions train;
  std::string verify;
};

void check(const Options& options) {
  for (const std::string& part : options.parts) {
    if (part != "copy" && part != "memory" && part != "training" && part != "gain") {
      throw UsageError("there is no part '" + part + "' (--only; see --help)");
    }
  }
  for (const double limit : options.limits) {
    if (limit < 0) throw UsageError("--limits: MB/s, or 0 for none");
  }
  if (!std::filesystem::is_directory(options.directory)) {
    throw UsageError("there is no directory " + options.directory.string() +
                     "; make it, or name another (--directory)");
  }
}

int run(Options options) {
  check(options);
  setenv("HOLDFAST_LOG", "error", 0);
  setenv("HOLDFAST_SOURCES", "signal", 1);
  configure_log();
  std::printf("bench_mirror: %u cores, in %s; slow volumes by pacing of the programs' own writes\n",
              std::thread::hardware_concurrency(), std::filesystem::absolute(options.directory).c_str());
  Report report;
  using Part = void (*)(const Options&, Report&);
  const std::pair<const char*, Part> parts[] = {{"copy", measure_copies},
                                                {"memory", measure_memory},
                                                {"training", measure_training},
                                                {"gain", measure_gain}};
  for (const auto& [name, part] : parts) {
    if (std::find(options.parts.begin(), options.parts.end(), name) != options.parts.end())
      part(options, report);
  }
  auto all = report.json();
  all["pacing"] = "own writes";
  write_figures(options.output + ".json", all);
  std::ofstream(options.output + ".svg") << chart_of_gain(options, report);
  std::printf("\nwritten: %s.json, %s.svg\n", options.output.c_str(), options.output.c_str());
  return 0;
}

int run_program(int count, char** arguments) {
  Options options;
  Child child;
  std::string directory = ".";
  bool quick = false;
  bool no_rclone = false;
  double megabytes = 188;
  double large = 2000;
  CLI::App app(kHelp, "bench_mirror");
  app.add_option("--directory", directory, "where to write; a directory on the disk in question (here: .)");
  app.add_option("--megabytes", megabytes, "of the checkpoint in copy and training (188)")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--large", large, "megabytes of the state in memory and gain (2000)")
      ->check(CLI::Range(1.0, 1e6));
  app.add_option("--limits", options.limits, "MB/s of the safe volume; 0: no limit (0,100,500)")
      ->delimiter(',');
  app.add_option("--repetitions", options.repetitions, "of copies, interleaved (5)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--pairs", options.pairs, "of windows in training (6)")->check(CLI::Range(1, 1000));
  app.add_option("--window", options.window, "seconds of a window (6)")->check(CLI::Range(0.1, 3600.0));
  app.add_option("--gain-seconds", options.gain, "of each of the runs in gain; 0: the model alone (240)")
      ->check(CLI::Range(0.0, 36000.0));
  app.add_option("--only", options.parts, "which parts, separated by commas (all)")->delimiter(',');
  app.add_flag("--no-rclone", no_rclone, "directories alone");
  app.add_flag("--quick", quick, "shows that it works, in seconds: small files, few repetitions");
  app.add_option("--output", options.output, "name of the files without .json and .svg");
  app.add_option("--child-train", child.train.directory)->group("");
  app.add_option("--child-state", child.train.state)->group("");
  app.add_option("--child-every", child.train.every)->group("");
  app.add_option("--child-seconds", child.train.seconds)->group("");
  app.add_option("--child-limit", child.train.limit)->group("");
  app.add_option("--child-threads", child.train.threads)->group("");
  app.add_option("--child-verify", child.verify)->group("");
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::usage);
  }
  return ended_by("bench_mirror", [&] {
    if (app.count("--child-train") > 0) return train(child.train);
    if (!child.verify.empty()) return verify_once(child.verify);
    if (quick) {
      if (app.count("--megabytes") == 0) megabytes = 8;
      if (app.count("--large") == 0) large = 24;
      if (app.count("--limits") == 0) options.limits = {0, 100};
      if (app.count("--repetitions") == 0) options.repetitions = 1;
      if (app.count("--pairs") == 0) options.pairs = 1;
      if (app.count("--window") == 0) options.window = 0.5;
      if (app.count("--gain-seconds") == 0) options.gain = 4;
    }
    options.directory = directory;
    options.rclone = !no_rclone;
    options.bytes = static_cast<std::uint64_t>(megabytes * 1e6);
    options.large = static_cast<std::uint64_t>(large * 1e6);
    if (options.output.empty()) {
      options.output =
          std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bench_mirror";
    }
    return run(std::move(options));
  });
}

}}  // namespace holdfast::bench

int main(int count, char** arguments) { return holdfast::bench::run_program(count, arguments); }
