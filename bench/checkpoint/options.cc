#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "../shared/program.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr char kHelp[] =
    R"(Measures what a checkpoint costs: durable writes against a raw O_DIRECT write of the same bytes and against
the tools that others use, what the training waits, CPU taken from it, restore, memory, and the training time
that a save really costs. All of it in one run on a real disk, everything made durable the same way (temporary
file, fsync, rename, fsync of the directory), rivals taking turns, windows in random order, medians with the
bootstrap's 95 % interval. Prints a table with each figure's goal, and writes OUTPUT.json and OUTPUT.svg. A figure
whose interval is wider than its goal is "not resolved".

parts (--only):
  commit     durable write, ours and the peers', as shares of the ceiling; training thread blocked by a save
  shared     one file written by two ranks, and by four with 100 MB/s each, against one rank; bytes staged
  stolen     CPU that saving takes: on idle cores, from busy threads; instructions and cycles where they are counted
  restore    a verified restore against a raw O_DIRECT read
  flat       200 commits in a row; 50 files kept against 2 (ResNet-50 only: 9.6 GB of disk)
  memory     host memory that saving needs
  training   training time lost per save, ours and the peers', in paired windows (ResNet-50 only; minutes)
  split      what staging is made of: attributes, descriptions, copies; what blocks the training thread; on a GPU copies
             into page-locked memory and into ordinary
  gpu        training time lost per save, and the training thread blocked, on a GPU where there is one: FP16 in channels_last,
             at 32 and 224 pixels

states (--states):
  resnet50   the example's ResNet-50 with momentum: 188 MB, 481 tensors
  2gb        eleven of it: 2.07 GB of the same shapes
  tiny       for trying out: an eighth of its width

The Python peers are installed once by bench/peers/install; without them their rows are left out, aloud. Run it
on a quiet machine: about 20 minutes on two cores. Our own figures in 5 minutes:

  bench_checkpoint --directory DIR --no-peers --states resnet50 --only commit,stolen,training,split --windows 30
)";

void check_known(const std::vector<std::string>& given) {
  for (const std::string& part : given) {
    if (std::find(std::begin(kParts), std::end(kParts), part) == std::end(kParts)) {
      throw UsageError("there is no part '" + part + "' (--only; see --help)");
    }
  }
}

}  // namespace

bool Options::wants(const std::string& part) const {
  return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
}

std::optional<Options> parse_options(int argc, char** argv) {
  Options options;
  std::string directory = ".";
  int repetitions = 0;
  int windows = 0;
  bool no_peers = false;
  CLI::App app(kHelp, "bench_checkpoint");
  app.add_option("--directory", directory, "where to write; a directory on the disk in question (here: .)");
  app.add_option("--states", options.states, "which states, separated by commas (resnet50,2gb)")
      ->delimiter(',');
  app.add_option("--only", options.parts, "which parts, separated by commas (all)")->delimiter(',');
  app.add_option("--repetitions", repetitions, "of everything, interleaved (9)")->check(CLI::Range(1, 1000));
  app.add_option("--windows", windows, "pairs of windows in the training part (12)")
      ->check(CLI::Range(2, 1000));
  app.add_option("--window-steps", options.window_steps, "training steps of a window (5)")
      ->check(CLI::Range(2, 1000));
  app.add_flag("--no-peers", no_peers, "ours and the ceiling alone");
  app.add_flag("--quick", options.quick, "shows that it works, in seconds: the tiny state, few repetitions");
  app.add_option("--output", options.output, "name of the files without .json and .svg");
  app.add_option("--child-memory", options.child_memory)->group("");
  if (!parsed(app, argc, argv)) return std::nullopt;
  options.directory = directory;
  options.peers = !no_peers;
  if (options.quick) {
    options.commits = 12;
    options.kept = 4;
    options.window_steps = 2;
  }
  if (options.states.empty()) {
    options.states =
        options.quick ? std::vector<std::string>{"tiny"} : std::vector<std::string>{"resnet50", "2gb"};
  }
  options.repetitions = repetitions != 0 ? repetitions : options.quick ? 2 : 9;
  options.windows = windows != 0 ? windows : options.quick ? 2 : 12;
  if (options.output.empty()) {
    options.output =
        std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bench_checkpoint";
  }
  for (const std::string& state : options.states) state_named(state);
  check_known(options.parts);
  return options;
}

}  // namespace holdfast::bench
