// How long a run stands still when a standby takes it over, and what a standby costs: see --help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../checkpoint/statistics.h"
#include "../shared/median.h"
#include "../shared/program.h"
#include "../shared/seconds.h"
#include "../shared/temporary_folder.h"
#include "holdfast/base/error.h"
#include "holdfast/io/file_system.h"
#include "holdfast/writing/file_verifier.h"
#include "machine.h"
#include "trainer.h"

namespace holdfast::bench { namespace {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    R"(A run that changes hands, with real processes on this machine: `holdfast supervise` holds it, and
`supervise --standby` waits beside, with a checkpoint at hand. Their trainer makes steps of about 1 ms, and holds
a state of --megabytes, half of it momentum.

  hand-over  SIGTERM at the holder, until the first step of the standby has ended. Of it the holder's own last
             commit (from its last step boundary until finish() has returned), and the rest. `reading once`: the
             file of that commit, read from the disk and verified, in no memory of its own
  cost       steps a second of a holder on all cores, with a standby beside it and without, in pairs of windows.
             Each window has one save, which the standby reads

Prints medians, with the 95 % interval of a bootstrap; one that is wider than its goal resolves nothing. Run it on
a quiet machine. With the defaults it takes 10 minutes, 8 GB of memory and 10 GB of disk.
)";

struct HandOverGiven {
  std::string directory = fs::temp_directory_path();
  std::vector<int> megabytes = {188, 2000};
  int repetitions = 9;
  int pairs = 6;
  double window = 20;
  bool home = false;
  std::string output;
  TrainerOptions train;  // this process is a trainer
};

// 0: none is set.
struct GoalsOfSize {
  int megabytes = 0;
  double total = 0;  // seconds
  double rest = 0;
  double to_reading = 0;
};
constexpr double kMostCost = 0.5;  // %

class HandOverReport {
 public:
  void section(const std::string& title) { std::printf("\n%s\n", title.c_str()); }
  void add(const std::string& key, const char* what, const char* unit, const std::vector<double>& samples,
           double at_most = 0) {
    const double middle = median(samples);
    const Interval interval = interval_of_median(samples);
    std::printf("  %-52s %8.3f %-5s [%.3f, %.3f]", what, middle, unit, interval.low, interval.high);
    if (at_most > 0) {
      const char* const verdict = interval.width() > at_most ? "not resolved"
                                  : middle <= at_most        ? "met"
                                                             : "missed";
      std::printf("  %s (goal <= %g)", verdict, at_most);
    }
    std::printf("\n");
    std::fflush(stdout);
    nlohmann::ordered_json row = {{"key", key}, {"value", middle}, {"unit", unit}, {"samples", samples}};
    row["interval"] = {interval.low, interval.high};
    if (at_most > 0) row["at_most"] = at_most;
    rows_.push_back(std::move(row));
  }
  const nlohmann::ordered_json& rows() const { return rows_; }

 private:
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

// Reads and verifies the newest checkpoint of a run once, and keeps nothing of it.
double reading_once(const fs::path& run) {
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(run)) {
    if (entry.path().extension() == ".h5") newest = std::max(newest, entry.path());
  }
  const auto file = FileSystem::real().open_file(newest, OpenMode::read);
  if (!file) throw Error("no checkpoint in " + run.string());
  FileVerifier verifier;
  verifier.stop_keeping();
  const double began = now();
  const Verdict verdict = verifier.inspect(*file, Verifier::Depth::full, false);
  const double took = now() - began;
  if (verdict.kind != Verdict::Kind::good) throw Error(newest.string() + ": " + verdict.reason);
  return took;
}

// A chain of machines with one run: each of them stands by, holds the run, and hands it over.
class Chain {
 public:
  Chain(const HandOverGiven& given, int megabytes, int threads)
      : given_(given), megabytes_(megabytes), threads_(threads), folder_(given.directory) {}

  std::unique_ptr<Machine> start(bool standby) {
    const std::string name = std::to_string(++started_);
    auto machine = std::make_unique<Machine>(
        MachineOptions{.directory = given_.home ? folder_.path() / ("run" + name) : run(),
                       .home = given_.home ? folder_.path() / "home" : fs::path(),
                       .told = folder_.path() / ("told" + name),
                       .state = static_cast<std::uint64_t>(megabytes_) * 1'000'000,
                       .threads = threads_,
                       .standby = standby});
    if (!standby) {
      machine->wait_for(kStepped);
      machine->save();
    } else {
      machine->wait_until_warm();
    }
    return machine;
  }
  fs::path run() const { return folder_.path() / (given_.home ? "home" : "run"); }

 private:
  const HandOverGiven& given_;
  const int megabytes_;
  const int threads_;
  const TemporaryFolder folder_;
  int started_ = 0;
};

void measure_hand_overs(const HandOverGiven& given, const GoalsOfSize& goal, HandOverReport& report) {
  Chain chain(given, goal.megabytes, 1);
  std::vector<double> total, commit, rest, from_end, reading, ratio;
  auto holder = chain.start(false);
  for (int i = 0; i < given.repetitions; ++i) {
    auto standby = chain.start(true);
    const double told = holder->tell_to_stop();
    const double stepped = standby->wait_for(kStepped).at;
    const double ended = holder->wait_for(kEnded).at;
    commit.push_back(ended - holder->wait_for(kBoundary).at);
    holder->finish();
    total.push_back(stepped - told);
    rest.push_back(total.back() - commit.back());
    from_end.push_back(stepped - ended);
    reading.push_back(reading_once(chain.run()));
    ratio.push_back(from_end.back() / reading.back());
    holder = std::move(standby);
  }
  holder->tell_to_stop();
  holder->finish();
  const std::string size = std::to_string(goal.megabytes);
  report.section(size + " MB, " + (given.home ? "two directories, one HOME" : "one directory") + ", " +
                 std::to_string(given.repetitions) + " hand-overs");
  const std::string key = (given.home ? "home." : "shared.") + size + ".";
  report.add(key + "total", "SIGTERM to the standby's first step", "s", total, goal.total);
  report.add(key + "commit", "of it the holder's own last commit", "s", commit);
  report.add(key + "rest", "of it all the rest", "s", rest, goal.rest);
  report.add(key + "from_end", "from the holder's end to the standby's first step", "s", from_end);
  report.add(key + "reading", "reading once", "s", reading);
  report.add(key + "ratio", "from the end to the step / reading once", "times", ratio, goal.to_reading);
}

void measure_cost(const HandOverGiven& given, HandOverReport& report) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Chain chain(given, given.megabytes.front(), cores);
  const auto holder = chain.start(false);
  const auto window = [&] {
    holder->save();
    return holder->rate(given.window);
  };
  std::vector<double> with, without, processor;
  Coin coin;
  for (int i = 0; i < given.pairs; ++i) {
    const bool first = coin();
    for (const bool beside : {first, !first}) {
      if (!beside) {
        without.push_back(window());
        continue;
      }
      const auto standby = chain.start(true);
      const double before = standby->processor_seconds();
      const double began = now();
      with.push_back(window());
      processor.push_back(100 * (standby->processor_seconds() - before) / (now() - began) / cores);
      standby->tell_to_stop();
      standby->finish();
    }
  }
  holder->tell_to_stop();
  holder->finish();
  report.section("a standby beside a holder, " + std::to_string(given.megabytes.front()) + " MB, " +
                 std::to_string(cores) + " cores computing, " + std::to_string(given.pairs) +
                 " pairs of windows with one save each");
  std::vector<double> lost;
  for (std::size_t i = 0; i < with.size(); ++i) lost.push_back(100 * (1 - with[i] / without[i]));
  report.add("cost.lost", "training lost, by counted steps", "%", lost, kMostCost);
  report.add("cost.processor", "processor time of the standby, of all cores", "%", processor);
}

int run(int argc, char** argv) {
  HandOverGiven given;
  CLI::App app(kHelp, "bench_handover");
  app.add_option("--directory", given.directory, "on the disk in question (TMPDIR)");
  app.add_option("--megabytes", given.megabytes, "of the checkpoints (188,2000); cost takes the first")
      ->delimiter(',')
      ->check(CLI::Range(1, 100'000));
  app.add_option("--repetitions", given.repetitions, "hand-overs of each size (9)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--pairs", given.pairs, "of windows in cost (6); 0: without that part")
      ->check(CLI::Range(0, 1000));
  app.add_option("--window", given.window, "seconds of a window (20)")->check(CLI::Range(0.1, 3600.0));
  app.add_flag("--home", given.home, "each machine has a directory of its own, and one HOME joins them");
  app.add_option("--output", given.output, "a JSON file for the figures, too");
  app.add_option("--train", given.train.directory)->group("");
  app.add_option("--told", given.train.told)->group("");
  app.add_option("--state", given.train.state)->group("");
  app.add_option("--threads", given.train.threads)->group("");
  if (!parsed(app, argc, argv)) return 0;
  if (!given.train.directory.empty()) return train(given.train);
  if (!fs::is_directory(given.directory)) {
    throw UsageError("there is no directory " + given.directory + "; make it, or name another (--directory)");
  }
  std::printf("bench_handover: %u cores, in %s\n", std::thread::hardware_concurrency(),
              fs::absolute(given.directory).c_str());
  HandOverReport report;
  for (const int megabytes : given.megabytes) {
    GoalsOfSize goal{.megabytes = megabytes};
    if (megabytes == 188) {
      goal.total = given.home ? 2.0 : 1.0;
      goal.rest = 0.4;
    } else if (megabytes == 2000 && !given.home) {
      goal.total = 3;
      goal.to_reading = 1.3;
    }
    measure_hand_overs(given, goal, report);
  }
  if (given.pairs > 0) measure_cost(given, report);
  if (!given.output.empty()) {
    write_figures(given.output, {{"bench", "handover"}, {"home", given.home}, {"rows", report.rows()}});
  }
  return 0;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  return holdfast::bench::ended_by("bench_handover", [&] { return holdfast::bench::run(argc, argv); });
}
