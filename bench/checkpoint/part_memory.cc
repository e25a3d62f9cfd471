// Host memory that saving needs beside the state: the peak while saving minus what was there before, in a
// process of its own, copies inside after_step and beside the training both.
#include <malloc.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "../shared/child.h"
#include "holdfast/base/error.h"
#include "machine.h"
#include "ours.h"
#include "parts.h"
#include "statistics.h"

namespace holdfast::bench {

int run_memory_child(const Options& options) {
  TrainingState state(state_named(options.child_memory));
  state.drop_gradients();
  // Memory that was freed must not hide what saving takes.
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak begins anew
  const std::uint64_t before = status_value("VmRSS");
  Ours ours(state, options.directory / "memory");
  for (int i = 0; i < 3; ++i) {
    ours.save();
    ours.save_beside_training(false);
  }
  const std::uint64_t peak = status_value("VmHWM");
  std::printf("%llu %llu\n", static_cast<unsigned long long>(peak - before),
              static_cast<unsigned long long>(state.bytes()));
  return 0;
}

void measure_memory(Bench& bench, const StateSpec& spec) {
  bench.progress("memory, " + spec.name, 0, 1);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const auto folder = bench.scratch.folder("memory-" + spec.name);
  Child child({self, "--child-memory", spec.name, "--directory", folder.string()},
              {.errors = folder / "errors", .meanwhile = stop_if_interrupted});
  const std::string line = child.read_line();
  unsigned long long extra = 0;
  unsigned long long state = 0;
  if (std::sscanf(line.c_str(), "%llu %llu", &extra, &state) != 2 || state == 0) {
    throw Error("the memory child said: " + line);
  }
  const double bytes = static_cast<double>(extra);
  Section section{
      .part = "memory", .state = spec.name, .title = spec.name + ": host memory for saving", .rows = {}};
  section.rows.push_back({.key = "memory.extra",
                          .what = "peak while saving, less what was there before",
                          .value = bytes,
                          .text = megabytes(bytes),
                          .of = "states",
                          .ratio = bytes / static_cast<double>(state),
                          .goal = Goal{Goal::Kind::at_most, 1.05},
                          .samples = {bytes},
                          .note = "resident memory of a process of its own, its first save included"});
  bench.report.add(std::move(section));
}

}  // namespace holdfast::bench
