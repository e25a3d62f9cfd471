// The published table of training throughput, on whatever device is here: see --help.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/version.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "captured.h"
#include "holdfast/base/error.h"
#include "holdfast/precision/precision.h"
#include "measure.h"
#include "options.h"
#include "output.h"
#include "peak.h"

namespace holdfast::bench {
namespace {

constexpr double kLargestOf32 = 36e9;  // bytes; a GPU with more takes the batch sizes for 40 GB

c10::Device device_of(const Options& options) {
  if (options.device == "cpu" || (options.device.empty() && !at::hasCUDA())) return c10::Device(c10::kCPU);
  if (!at::hasCUDA()) {
    throw UsageError("there is no CUDA device here, or no CUDA in this build (HOLDFAST_CUDA): --device cpu");
  }
  return c10::Device(c10::kCUDA, 0);
}

std::string name_of(c10::Device device) {
  if (!device.is_cpu()) return traits_of(device).name;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

int run(Options options) {
  const c10::Device device = device_of(options);
  const bool gpu = device.is_cuda();
  Choice& choice = options.choice;
  const double memory = memory_of(device);
  choice.memory = options.memory.value_or(gpu && memory < kLargestOf32 ? 32 : 40);
  choice.scale = options.scale.value_or(gpu ? 1 : 1.0 / 64);
  const Setup setup{.device = device,
                    .variant = options.variant,
                    .pixels = options.pixels,
                    .steps = options.steps.value_or(gpu ? 99 : 3),
                    .warm_up = options.warm_up.value_or(gpu ? 11 : 1)};
  Table table{.heading = {.device = name_of(device), .variant = options.variant},
              .rows = {},
              .published = read_published(options.published)};
  const auto peaks =
      options.peak.empty() ? known_peaks(table.heading.device) : std::optional(parse_peaks(options.peak));
  at::globalContext().setBenchmarkCuDNN(true);
  if (options.threads != 0) at::set_num_threads(options.threads);

  char how[256];
  std::snprintf(how, sizeof how, "batches for %d GB x %.4g, %d steps after %d, SGD with momentum",
                choice.memory, choice.scale, setup.steps, setup.warm_up);
  table.heading.how = how;
  table.heading.machine =
      std::to_string(at::get_num_threads()) + " threads, LibTorch " + std::string(TORCH_VERSION);
  std::printf("bench_precision_table: %s, variant %s, %s\n%s\n", table.heading.device.c_str(),
              options.variant.c_str(), table.heading.machine.c_str(), how);
  if (!peaks) {
    std::printf("no utilisation: the peak of %s is not known; give it with --peak\n",
                table.heading.device.c_str());
  }
  const auto write_all = [&] {
    write_text(options.output.string() + ".csv", csv_of(table));
    write_text(options.output.string() + ".json", json_of(table));
    write_text(options.output.string() + ".svg", chart_of(table));
  };
  write_all();  // minutes of work must not end in a place that cannot be written
  std::fputs(heading_line().c_str(), stdout);
  for (const Cell& cell : planned(choice)) {
    std::fflush(stdout);
    Row row = measure(cell, setup);
    if (peaks && peaks->contains(cell.precision)) row.peak_tflops = peaks->at(cell.precision);
    std::fputs(line_of(row, options.variant).c_str(), stdout);
    table.rows.push_back(std::move(row));
    write_all();  // what an interrupted run has is kept
  }
  std::fputs(("\n" + summary_of(table)).c_str(), stdout);
  const std::string name = options.output.string();
  std::printf("written: %s.csv, %s.json, %s.svg\n", name.c_str(), name.c_str(), name.c_str());
  return 0;
}

}  // namespace
}  // namespace holdfast::bench

int main(int argc, char** argv) {
  try {
    const auto options = holdfast::bench::parse_options(argc, argv);
    return options ? holdfast::bench::run(*options) : 0;
  } catch (const holdfast::Error& error) {
    std::fprintf(stderr, "bench_precision_table: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_precision_table: %s\n", error.what());
    return static_cast<int>(holdfast::ExitCode::internal);
  }
}
