// The published table of training throughput, on whatever device is here: see --help.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "../shared/program.h"
#include "../shared/root.h"
#include "catalogue.h"
#include "device.h"
#include "format.h"
#include "holdfast/base/error.h"
#include "holdfast/base/freed_memory.h"
#include "holdfast/precision/precision.h"
#include "kept_rows.h"
#include "measure.h"
#include "options.h"
#include "output.h"
#include "peak.h"
#include "session.h"

namespace holdfast::bench { namespace {

constexpr int kDisagreement = 1;       // exit code: a row and its peer do not compute the same
constexpr int kLeastWithPeers = 9;     // steps, one a turn
constexpr int kStepsOfGlobal = 3;      // after one
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

int steps_of_global(const Setup& setup) { return setup.peers.empty() ? kStepsOfGlobal : kLeastWithPeers; }

Table heading_of(const Options& options, const Setup& setup) {
  Table table{.heading = {.device = name_of(setup.device),
                          .gpu = setup.device.is_cuda(),
                          .variant = options.variant,
                          .peers = options.peers},
              .rows = {},
              .published = read_published(options.published)};
  if (!options.printed.empty()) table.printed = read_printed_speed_ups(options.printed);
  const Choice& choice = options.choice;
  const std::string timed =
      setup.seconds > 0 ? formatted("%.4g s of steps", setup.seconds) : formatted("%d steps", setup.steps);
  table.heading.how = formatted("batches for %d GB x %.4g, %s after %d, ", choice.memory, choice.scale,
                                timed.c_str(), setup.warm_up);
  const auto by_global = [](const Cell& cell) { return cell.global != 0; };
  if (setup.seconds == 0 && !options.steps && std::ranges::any_of(planned(choice), by_global)) {
    table.heading.how +=
        formatted("of global rows %d after %d, ", steps_of_global(setup), options.warm_up.value_or(1));
  }
  table.heading.how += setup.update ? "SGD with momentum (BERT: LAMB)" : "forward and backward alone";
  if (!options.peers.empty()) table.heading.how += ", no dropout, in turns with peers in Python";
  table.heading.machine =
      std::to_string(at::get_num_threads()) + " threads, LibTorch " + std::string(TORCH_VERSION);
  return table;
}

// What figures depend on: a table that goes on has to have it the same.
std::vector<std::pair<std::string, AttributeValue>> options_of(const Options& options, const Setup& setup,
                                                               const Heading& heading) {
  return {{"device", heading.device},
          {"machine", heading.machine},
          {"variant", options.variant},
          {"bn", options.bn},
          {"pixels", options.pixels},
          {"tiny-bert", options.tiny_bert},
          {"update", options.update},
          {"memory", std::int64_t{options.choice.memory}},
          {"scale", options.choice.scale},
          {"micro-batch", options.choice.micro_batch},
          {"steps", std::int64_t{setup.seconds > 0 ? 0 : setup.steps}},
          {"seconds", setup.seconds},
          {"warm-up", std::int64_t{setup.warm_up}},
          {"free", options.free_gb.value_or(0)},
          {"peers", options.peers}};
}

class Run {
 public:
  explicit Run(Options options) : options_(std::move(options)) {
    const c10::Device device = device_of(options_);
    const bool gpu = device.is_cuda();
    Choice& choice = options_.choice;
    const double memory = memory_of(device);
    choice.memory = options_.memory.value_or(gpu && memory < kLargestOf32 ? 32 : 40);
    choice.scale = options_.scale.value_or(gpu ? 1 : 1.0 / 64);
    if (options_.default_rows) choice.rows = default_rows(gpu);
    setup_.device = device;
    setup_.variant = options_.variant;
    setup_.bn = options_.bn;
    setup_.pixels = options_.pixels;
    setup_.tiny = options_.tiny_bert;
    setup_.update = options_.update;
    setup_.steps = options_.steps.value_or(gpu ? 99 : 3);
    setup_.seconds = options_.seconds;
    setup_.warm_up = options_.warm_up.value_or(gpu ? 11 : 1);
    setup_.peers = options_.peers;
    if (!setup_.peers.empty()) setup_.steps = std::max(setup_.steps, kLeastWithPeers);
    setup_.root = root_folder();
    if (options_.free_gb) setup_.free = *options_.free_gb * 1e9;
    if (options_.threads != 0) at::set_num_threads(options_.threads);
    at::globalContext().setBenchmarkCuDNN(true);
    table_ = heading_of(options_, setup_);
    table_.heading.build = build_of(std::filesystem::path(HOLDFAST_SOURCE_DIR) / "bench/peers");
    for (const auto& [name, value] : options_of(options_, setup_, table_.heading)) {
      table_.heading.options += (table_.heading.options.empty() ? "" : ", ") + name + "=" + to_text(value);
    }
    peaks_ = options_.peak.empty() ? known_peaks(table_.heading.device)
                                   : std::optional(parse_peaks(options_.peak));
  }

  int operator()() {
    const Heading& heading = table_.heading;
    std::printf("bench_precision_table: %s, variant %s, %s\n%s\n", heading.device.c_str(),
                heading.variant.c_str(), heading.machine.c_str(), heading.how.c_str());
    if (!peaks_) {
      std::printf("no utilisation: the peak of %s is not known; give it with --peak\n",
                  heading.device.c_str());
    }
    const std::string name = options_.output.string();
    if (!options_.fresh) kept_ = kept_rows(name + ".json", heading.build, heading.options);
    write_all();  // minutes of work must not end in a place that cannot be written
    Session session(
        {.folder = name + ".run", .options = options_of(options_, setup_, heading), .fresh = options_.fresh});
    if (session.found() > 0) std::printf("going on: %zu rows were measured before\n", session.found());
    if (!kept_.empty()) {
      std::printf("kept: rows of %s.json that this build measured (--fresh measures them again)\n",
                  name.c_str());
    }
    setup_.stop = [&session] { return session.told_to_stop(); };
    std::fputs(heading_line(table_).c_str(), stdout);
    const bool complete = fill(session);
    const int code = session.finish(complete);
    if (!complete) {
      std::printf("interrupted: %zu rows are kept; the same command goes on\n", table_.rows.size());
      return code;
    }
    std::fputs(("\n" + summary_of(table_)).c_str(), stdout);
    std::printf("written: %s.csv, %s.json, %s.svg\n", name.c_str(), name.c_str(), name.c_str());
    if (const std::string rows = disagreements_of(table_); !rows.empty()) {
      std::fflush(stdout);
      std::fprintf(stderr, "bench_precision_table: %s\n", rows.c_str());
      return kDisagreement;
    }
    return code;
  }

 private:
  // False: told to stop.
  bool fill(Session& session) {
    for (const Cell& cell : planned(options_.choice)) {
      std::fflush(stdout);
      if (const Row* row = session.find(cell)) {
        show(*row);
        continue;
      }
      if (const Row* row = kept(cell)) {
        show(*row);
        session.add(*row);
        continue;
      }
      setup_.full_batch = batch_of(cell.model, cell.precision, options_.choice.memory, 1);
      Setup setup = setup_;
      if (cell.global != 0) {  // updates of minutes
        if (!options_.steps) setup.steps = steps_of_global(setup_);
        if (!options_.warm_up) setup.warm_up = 1;
      }
      try {
        if (session.told_to_stop()) return false;
        const Row row = measure(cell, setup);
        show(row);
        session.add(row);
      } catch (const Stopped&) {
        return false;
      }
    }
    return true;
  }

  const Row* kept(const Cell& cell) const {
    const auto same = [&](const Row& row) { return name_of(row.cell) == name_of(cell); };
    const auto found = std::find_if(kept_.begin(), kept_.end(), same);
    return found != kept_.end() ? &*found : nullptr;
  }

  void show(Row row) {
    if (peaks_ && peaks_->contains(row.cell.precision)) row.peak_tflops = peaks_->at(row.cell.precision);
    std::fputs(line_of(row, table_).c_str(), stdout);
    std::fflush(stdout);
    table_.rows.push_back(std::move(row));
    write_all();  // what an interrupted run has is kept
  }

  void write_all() const {
    write_text(options_.output.string() + ".csv", csv_of(table_));
    write_text(options_.output.string() + ".json", json_of(table_));
    write_text(options_.output.string() + ".svg", chart_of(table_));
  }

  Options options_;
  Setup setup_;
  Table table_;
  std::vector<Row> kept_;
  std::optional<Peaks> peaks_;
};

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  holdfast::keep_freed_memory();
  return holdfast::bench::ended_by("bench_precision_table", [&] {
    const auto options = holdfast::bench::parse_options(argc, argv);
    return options ? holdfast::bench::Run(*options)() : 0;
  });
}
