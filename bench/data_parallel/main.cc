// Wall time of a data-parallel training step, ours, plain c10d's and Python's: see --help.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/api/include/torch/version.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "../precision_table/peer_job.h"
#include "../shared/child.h"
#include "../shared/median.h"
#include "../shared/program.h"
#include "../shared/rank_environment.h"
#include "../shared/root.h"
#include "../shared/temporary_folder.h"
#include "holdfast/base/error.h"
#include "holdfast/base/launch_environment.h"
#include "holdfast/cli/launch/listening_socket.h"
#include "rank.h"

namespace holdfast::bench { namespace {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    R"(Wall time of a step of data-parallel training (forward, backward with gradients averaged over the ranks, SGD
with momentum) with ranks on this machine, over Gloo, or with --device cuda over NCCL:

  ours     holdfast::DataParallel
  plain    a loop over c10d::Reducer, without Holdfast; in the same processes as ours
  python   torch.nn.parallel.DistributedDataParallel, with the optimizer's fused=True; left out where
           bench/peers/install has not run, and with --device cuda

Same weights, same batch, same number of threads, all of them taking turns. Two ranks share one GPU if NCCL is 2.30 or
newer, with NCCL_MULTI_RANK_GPU_ENABLE=1: both contenders suffer its time slices alike. Prints medians, how much longer ours
takes (the median of the repetitions' quotients), and how far losses lie apart: ours and plain must have the same
bits. Run it on a quiet machine, with a core for each rank.
)";

struct DataParallelOptionsGiven {
  std::vector<std::string> models = {"mlp", "resnet50"};
  int ranks = 2;
  std::int64_t batch = 0;
  std::int64_t pixels = 64;
  int repetitions = 9;
  int steps = 0;
  int threads = 1;
  bool no_python = false;
  std::string device = "cpu";
  std::string output;
  std::string rank_of;  // model: this process is a rank
};

struct Turn {
  double seconds = 0;
  double loss = 0;
};

struct Contender {
  std::string name;
  std::function<Turn(int)> steps;
  double first_loss = 0;
  std::vector<Turn> turns = {};
};

int gpus() { return at::hasCUDA() ? c10::impl::VirtualGuardImpl(c10::kCUDA).deviceCount() : 0; }

c10::Device this_ranks_gpu() {
  const int count = gpus();
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(count > 1 ? launch_environment().local_rank % count : 0)};
}

JobOptions job_of(const DataParallelOptionsGiven& options, const std::string& model) {
  const bool mlp = model == "mlp";
  return {.model = model,
          .batch = options.batch != 0 ? options.batch : (mlp ? 64 : 8) * options.ranks,
          .pixels = mlp ? 0 : options.pixels,
          .device = options.device == "cuda" ? this_ranks_gpu() : c10::Device(c10::kCPU)};
}

// The processes of one program; rank 0 answers.
class Ranks {
 public:
  Ranks(int count, int threads, const std::vector<std::string>& program, const fs::path& folder) {
    const ListeningSocket socket;  // nobody else gets this port before rank 0 has taken it over
    const std::string port = std::to_string(socket.port());
    for (int rank = count; rank-- > 0;) {
      std::vector<std::string> words = rank_environment(rank, count, socket, threads);
      words.insert(words.end(), program.begin(), program.end());
      const std::string errors = "rank-" + port + "-" + std::to_string(rank);
      ChildOptions options{.errors = folder / errors};
      if (rank == 0) options.inherited = socket.descriptor();
      children_.push_back(std::make_unique<Child>(words, std::move(options)));
    }
    first_line_ = nlohmann::json::parse(zero().read_line());
  }
  // Rank 0 first: it tells the others to end.
  ~Ranks() {
    while (!children_.empty()) children_.pop_back();
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  Turn ask(const std::string& line) {
    const auto answer = nlohmann::json::parse(zero().ask(line));
    return {.seconds = answer.at("seconds").get<double>(), .loss = answer.at("loss").get<double>()};
  }
  const nlohmann::json& first_line() const { return first_line_; }

 private:
  Child& zero() { return *children_.back(); }

  std::vector<std::unique_ptr<Child>> children_;
  nlohmann::json first_line_;
};

std::vector<double> quotients(const Contender& ours, const Contender& theirs) {
  std::vector<double> found;
  for (std::size_t i = 0; i < ours.turns.size(); ++i) {
    found.push_back(ours.turns[i].seconds / theirs.turns[i].seconds);
  }
  return found;
}

double farthest_loss(const Contender& ours, const Contender& theirs) {
  double farthest = std::abs(ours.first_loss - theirs.first_loss);
  for (std::size_t i = 0; i < ours.turns.size(); ++i) {
    farthest = std::max(farthest, std::abs(ours.turns[i].loss - theirs.turns[i].loss));
  }
  return farthest;
}

nlohmann::ordered_json report(const std::vector<Contender>& contenders, int steps) {
  auto rows = nlohmann::ordered_json::array();
  const Contender& ours = contenders.front();
  for (const Contender& one : contenders) {
    std::vector<double> seconds;
    for (const Turn& turn : one.turns) seconds.push_back(turn.seconds / steps);
    nlohmann::ordered_json row = {{"who", one.name}, {"seconds_per_step", median(seconds)}};
    std::printf("  %-8s %10.3f ms", one.name.c_str(), median(seconds) * 1e3);
    if (&one != &ours) {
      const double ratio = median(quotients(ours, one));
      const double goal = one.name == "plain" ? 1.02 : 1.0;
      const double first = std::abs(ours.first_loss - one.first_loss);
      const double apart = farthest_loss(ours, one);
      std::printf(
          "   ours takes %.3f times as long, goal <= %.2f: %s; first losses within %.2g, all within %.2g",
          ratio, goal, ratio <= goal ? "met" : "missed", first, apart);
      row["ours_over_it"] = ratio;
      row["goal"] = goal;
      row["first_loss_difference"] = first;
      row["largest_loss_difference"] = apart;
    }
    std::printf("\n");
    row["last_loss"] = one.turns.back().loss;
    rows.push_back(std::move(row));
  }
  return rows;
}

nlohmann::ordered_json compare(const DataParallelOptionsGiven& options, const std::string& model) {
  const bool mlp = model == "mlp";
  const JobOptions job = job_of(options, model);
  const int steps = options.steps != 0 ? options.steps : mlp ? 200 : 1;
  const TemporaryFolder folder;
  std::printf("\n%s, %d ranks, batch %lld of all, %d %s a rank; medians of %d turns of %d %s\n",
              model.c_str(), options.ranks, static_cast<long long>(job.batch), options.threads,
              options.threads == 1 ? "thread" : "threads", options.repetitions, steps,
              steps == 1 ? "step" : "steps");
  std::fflush(stdout);

  Ranks cpp(options.ranks, options.threads,
            {fs::read_symlink("/proc/self/exe").string(), "--rank-of", model, "--ranks",
             std::to_string(options.ranks), "--batch", std::to_string(job.batch), "--pixels",
             std::to_string(options.pixels), "--threads", std::to_string(options.threads), "--device",
             options.device},
            folder.path());
  std::vector<Contender> contenders;
  for (const char* const name : {"ours", "plain"}) {
    contenders.push_back({.name = name, .steps = [&cpp, name](int count) {
                            return cpp.ask(name + (" " + std::to_string(count)));
                          }});
  }
  nlohmann::ordered_json result = {
      {"model", model}, {"batch", job.batch}, {"pixels", job.pixels}, {"steps_of_a_turn", steps}};
  std::unique_ptr<Ranks> python;
  const fs::path root = root_folder();
  const fs::path interpreter = root / ".deps/peers/bin/python";
  const bool python_too = !options.no_python && options.device == "cpu";
  if (python_too && fs::exists(interpreter)) {
    write_job({.model = model, .variant = "torchvision", .classes = kJobClasses}, *our_training(job, false),
              folder.path());
    python = std::make_unique<Ranks>(
        options.ranks, options.threads,
        std::vector<std::string>{interpreter.string(), (root / "bench/peers/data_parallel.py").string(),
                                 (folder.path() / "job.json").string()},
        folder.path());
    result["torch"] = python->first_line().at("torch");
    contenders.push_back(
        {.name = "python", .steps = [&python](int count) { return python->ask(std::to_string(count)); }});
  } else {
    std::printf("  left out: python: %s\n", options.no_python ? "--no-python"
                                            : python_too      ? "run bench/peers/install"
                                                              : "--device cuda");
  }
  for (Contender& one : contenders) {
    one.first_loss = one.steps(1).loss;
    one.steps(std::max(steps / 4, 1));
  }
  std::vector<Contender*> order;
  for (Contender& one : contenders) order.push_back(&one);
  for (int i = 0; i < options.repetitions; ++i) {  // there and back again: nobody is always first
    for (Contender* const one : order) one->turns.push_back(one->steps(steps));
    std::reverse(order.begin(), order.end());
  }
  result["rows"] = report(contenders, steps);
  return result;
}

int run(int argc, char** argv) {
  DataParallelOptionsGiven options;
  CLI::App app(kHelp, "bench_data_parallel");
  app.add_option("--models", options.models, "of bench_step_time, separated by commas (mlp,resnet50)")
      ->delimiter(',')
      ->check(CLI::IsMember({"mlp", "resnet50", "resnet152", "vgg16", "alexnet"}));
  app.add_option("--ranks", options.ranks, "processes (2)")->check(CLI::Range(2, 64));
  app.add_option("--batch", options.batch, "samples of all ranks (mlp 64 a rank, others 8 a rank)")
      ->check(CLI::Range(2, 1 << 20));
  app.add_option("--pixels", options.pixels, "the pictures' side (64)")->check(CLI::Range(32, 1024));
  app.add_option("--repetitions", options.repetitions, "interleaved (9)")->check(CLI::Range(1, 1000));
  app.add_option("--steps", options.steps, "of a turn (mlp 200, others 1)")->check(CLI::Range(1, 1000000));
  app.add_option("--threads", options.threads, "of a rank (1)")->check(CLI::Range(1, 1024));
  app.add_option("--device", options.device, "cpu or cuda: a GPU for each rank, or one for all (cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--no-python", options.no_python, "leave Python out");
  app.add_option("--output", options.output, "a JSON file for the figures, too");
  app.add_option("--rank-of", options.rank_of)->group("");
  if (!parsed(app, argc, argv)) return 0;
  at::set_num_threads(options.threads);
  if (!options.rank_of.empty()) {
    serve_rank(job_of(options, options.rank_of));
    return 0;
  }
  if (options.device == "cuda" && gpus() == 0) {
    throw UsageError("there is no CUDA device here, or no CUDA in this build (HOLDFAST_CUDA): --device cpu");
  }
  if (options.batch % options.ranks != 0) {
    throw UsageError("--batch " + std::to_string(options.batch) + " is no multiple of --ranks " +
                     std::to_string(options.ranks));
  }
  nlohmann::ordered_json all = {{"bench", "data_parallel"},   {"ranks", options.ranks},
                                {"threads", options.threads}, {"repetitions", options.repetitions},
                                {"libtorch", TORCH_VERSION},  {"models", nlohmann::ordered_json::array()}};
  for (const std::string& model : options.models) all["models"].push_back(compare(options, model));
  if (!options.output.empty()) write_figures(options.output, all);
  return 0;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  return holdfast::bench::ended_by("bench_data_parallel", [&] { return holdfast::bench::run(argc, argv); });
}
