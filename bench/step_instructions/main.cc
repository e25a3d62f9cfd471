// Instructions of forward and backward, ours and Python's: see --help.
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "../precision_table/catalogue.h"
#include "../precision_table/peer_job.h"
#include "../precision_table/training.h"
#include "../precision_table/workload.h"
#include "../shared/callgrind.h"
#include "../shared/program.h"
#include "../shared/root.h"
#include "../shared/temporary_folder.h"
#include "holdfast/base/error.h"

namespace holdfast::bench { namespace {

constexpr char kHelp[] =
    R"(Instructions of forward and backward of one step in FP32 on a CPU, one thread: ours and the same model's in Python,
eager, with the same weights and batch. Counts do not depend on the machine's load: where they are equal, a difference
of a percent between windows of bench_precision_table is the machine's, not the program's.

Needs valgrind (apt-get install valgrind) and the peers (bench/peers/install). Under callgrind weights take minutes to be
drawn, and a step a hundred times its time: half an hour for ResNet-152 at 32 pixels, hours for SSD300, whose pictures
have 300. Ends with 1 where ours has more than 1.00 x Python's, and a thousandth that a count may differ between runs.
)";

constexpr double kMost = 1.001;  // of Python's
// The first step makes oneDNN's kernels.
constexpr int kFewSteps = 1;
constexpr int kManySteps = 2;
// As bench_precision_table seeds them.
constexpr std::uint64_t kWeights = 1;
constexpr std::uint64_t kInputs = 2;

struct Given {
  std::vector<std::string> models = {"resnet50", "resnet152"};
  std::string variant = "table";
  std::int64_t batch = 2;
  std::int64_t pixels = 32;
  std::string output;
  int ours = 0;  // only train so many steps: what callgrind looks at
};

Training training_of(const std::string& model, const Given& given) {
  torch::manual_seed(kWeights);
  Training training(make_workload({.model = model,
                                   .variant = given.variant,
                                   .pixels = given.pixels,
                                   .dropout = false,
                                   .fixed = true}),
                    c10::Device(c10::kCPU), {.update = false});
  torch::manual_seed(kInputs);
  training.give(training.work().draw(given.batch));
  return training;
}

int train(const Given& given) {
  Training training = training_of(given.models.front(), given);
  for (int i = 0; i < given.ours; ++i) training.step();
  std::printf("%g\n", training.loss());
  return 0;
}

double counted(std::optional<double> count) {
  if (!count) throw UsageError("there is no valgrind (apt-get install valgrind)");
  std::printf("%18.0f", *count);
  std::fflush(stdout);
  return *count;
}

nlohmann::ordered_json compare(const std::string& model, const Given& given) {
  const TemporaryFolder folder;
  write_job({.model = model, .variant = given.variant}, training_of(model, given), folder.path());
  std::printf("%-14s", model.c_str());
  std::fflush(stdout);
  const double ours = counted(instructions_of_one({}, kFewSteps, kManySteps, [&](int steps) {
    return this_program({"--models", model, "--variant", given.variant, "--batch",
                         std::to_string(given.batch), "--pixels", std::to_string(given.pixels), "--ours",
                         std::to_string(steps)});
  }));
  const std::filesystem::path root = root_folder();
  const double python = counted(instructions_of_one({}, kFewSteps, kManySteps, [&](int steps) {
    const std::filesystem::path asked = folder.path() / "steps";
    std::ofstream(asked, std::ios::trunc) << steps << "\n";
    return CountedRun{.command = {(root / ".deps/peers/bin/python").string(),
                                  (root / "bench/peers/precision_table.py").string(),
                                  (folder.path() / "job.json").string(), "eager"},
                      .input = asked.string()};
  }));
  const bool good = ours <= kMost * python;
  std::printf("%10.4f  goal <= 1.00: %s\n", ours / python, good ? "met" : "missed");
  return {{"model", model}, {"ours", ours}, {"python", python}, {"ratio", ours / python}, {"met", good}};
}

int measure(const Given& given) {
  ::setenv("PYTHONHASHSEED", "0", 1);
  if (given.ours > 0) return train(given);
  for (const std::string& model : given.models)
    static_cast<void>(kind_of(model));  // refuses unknown ones now
  std::printf(
      "instructions of forward and backward, batch %lld, variant %s, FP32, one thread\n%-14s%18s%18s%10s\n",
      static_cast<long long>(given.batch), given.variant.c_str(), "", "ours", "python", "ratio");
  auto rows = nlohmann::ordered_json::array();
  bool good = true;
  for (const std::string& model : given.models) {
    rows.push_back(compare(model, given));
    good = good && rows.back()["met"].get<bool>();
  }
  if (!given.output.empty()) {
    write_figures(given.output, {{"batch", given.batch}, {"variant", given.variant}, {"rows", rows}});
  }
  return good ? 0 : 1;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  holdfast::bench::Given given;
  CLI::App app(holdfast::bench::kHelp);
  app.add_option("--models", given.models, "separated by commas")->delimiter(',')->capture_default_str();
  app.add_option("--variant", given.variant, "torchvision or table")->capture_default_str();
  app.add_option("--batch", given.batch, "samples of a step; models with BatchNorm need 2 at 32 pixels")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--pixels", given.pixels, "the pictures' side; 0: the model's own; SSD300 has its own")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app.add_option("--output", given.output, "a JSON file for the figures, too");
  app.add_option("--ours", given.ours, "only train: what callgrind looks at")->group("");
  CLI11_PARSE(app, argc, argv);
  at::set_num_threads(1);
  return holdfast::bench::ended_by("bench_step_instructions",
                                   [&] { return holdfast::bench::measure(given); });
}
