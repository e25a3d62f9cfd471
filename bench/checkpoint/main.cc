// What a checkpoint costs, measured: see --help.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "machine.h"
#include "options.h"
#include "parts.h"
#include "python_peers.h"
#include "statistics.h"

namespace holdfast::bench {

void Bench::progress(const std::string& what, int done, int all) const {
  stop_if_interrupted();
  if (::isatty(STDERR_FILENO) == 0) return;
  show_status_line(what + ": " +
                   (done < 0 ? "warming up" : std::to_string(done) + "/" + std::to_string(all)));
}

namespace {

// The state, the image, the ceiling's buffer; with Python its own state and two copies of it.
constexpr double kStatesInMemory = 3.5;
constexpr double kStatesInPython = 4.5;

bool fits_in_memory(Bench& bench, const StateSpec& spec) {
  if (spec.copies == 1) return true;
  const double state = 188e6 * spec.copies;
  const double needed = state * (kStatesInMemory + (bench.python ? kStatesInPython : 0)) + 1e9;
  const double there = static_cast<double>(available_memory());
  if (there == 0 || there >= needed) return true;
  bench.report.leave_out(spec.name, "it needs " + megabytes(needed) + " of memory and " + megabytes(there) +
                                        " are available" + (bench.python ? "; --no-peers needs less" : ""));
  return false;
}

void measure(Bench& bench) {
  using Part = void (*)(Bench&, const StateSpec&);
  const std::pair<const char*, Part> parts[] = {
      {"commit", measure_commit},     {"shared", measure_shared}, {"stolen", measure_stolen},
      {"restore", measure_restore},   {"flat", measure_flatness}, {"memory", measure_memory},
      {"training", measure_training}, {"split", measure_split},
  };
  for (const auto& [name, part] : parts) {
    if (!bench.options.wants(name)) continue;
    for (const std::string& state : bench.options.states) {
      const StateSpec spec = state_named(state);
      const bool small_only = part == measure_flatness || part == measure_training;
      if ((small_only && spec.copies > 1) || !fits_in_memory(bench, spec)) continue;
      part(bench, spec);
      clear_status_line();
      ::malloc_trim(0);
    }
  }
  if (bench.options.wants("gpu")) measure_gpu(bench);
}

int run(const Options& options) {
  // A save that fails is this program's own error, and where it writes is the user's choice.
  if (std::getenv("HOLDFAST_LOG") == nullptr) {
    set_log_level(LogLevel::error);
  } else {
    configure_log();
  }
  check_directory(options.directory);
  if (!options.child_memory.empty()) return run_memory_child(options);
  require_room(options.directory, 64u << 20, "this bench");

  const Machine machine = this_machine(options.directory);
  std::printf("bench_checkpoint: %s\n%s, medians of %d interleaved repetitions%s\n",
              machine.one_line().c_str(), machine.time.c_str(), options.repetitions,
              options.quick ? ", quick" : "");
  Report report(machine, options.quick);
  // Written before anything is measured, too: minutes of work must not end in a place that cannot be written.
  report.write_json(options.output + ".json");
  catch_signals();
  if (options.quick)
    at::set_num_threads(1);  // quick beside other programs, too: threads do not wait for each other
  const std::string missing = options.peers ? python_peers_missing() : "--no-peers was given";
  if (!missing.empty()) report.leave_out("the peers in Python", missing);
  {
    Scratch scratch(options.directory);
    Bench bench{options, scratch, report, missing.empty()};
    measure(bench);
  }
  report.print_summary();
  report.write_json(options.output + ".json");
  report.write_chart(options.output + ".svg");
  std::printf("\nwritten: %s.json, %s.svg\n", options.output.c_str(), options.output.c_str());
  return 0;
}

}  // namespace
}  // namespace holdfast::bench

int main(int argc, char** argv) {
  try {
    const auto options = holdfast::bench::parse_options(argc, argv);
    return options ? holdfast::bench::run(*options) : 0;
  } catch (const holdfast::bench::Interrupted&) {
    std::fprintf(stderr, "bench_checkpoint: interrupted; nothing is left behind\n");
    return static_cast<int>(holdfast::ExitCode::forced);
  } catch (const holdfast::Error& error) {
    std::fprintf(stderr, "bench_checkpoint: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_checkpoint: %s\n", error.what());
    return static_cast<int>(holdfast::ExitCode::internal);
  }
}
