// How often ranks of one machine read the checkpoint from which they resume: see --help.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "../shared/child.h"
#include "../shared/median.h"
#include "../shared/program.h"
#include "../shared/rank_environment.h"
#include "../shared/temporary_folder.h"
#include "holdfast/base/error.h"
#include "holdfast/cli/launch/listening_socket.h"
#include "rank.h"
#include "support/loop_volume.h"

namespace holdfast::bench { namespace {

namespace fs = std::filesystem;

constexpr char kHelp[] =
    R"(The start of ranks of one machine, over Gloo, from one checkpoint on a loop device whose reads the kernel
throttles (blkio of cgroup v1, or io.max of v2):

  1 rank     alone
  ranks      all of them; one reads, the others take the bytes from its memory
  apart      the same, each in a PID namespace of its own, as in containers: so each reads, as before this was shared

Prints medians: bytes read from the device (as its own counter in /sys has them) in sizes of the file, the time until all
have resumed, and the peak of what resume() adds to the memory of all processes together (the sum of Pss, in which a
page that several map counts once). Needs root. Run it on a quiet machine.
)";

struct ReadOnceGiven {
  int ranks = 4;
  std::int64_t megabytes = 188;
  double rate = 100;
  int repetitions = 3;
  std::string output;
  std::string rank_of;  // this process is a rank, and this the run directory
};

// Lets the kernel limit the reads of a device, by all processes.
class ReadThrottle {
 public:
  ReadThrottle(const std::string& device, double megabytes_per_second) {
    std::ifstream numbers("/sys/class/block/" + device + "/dev");
    numbers >> device_;
    const std::string rate = std::to_string(static_cast<long long>(megabytes_per_second * 1e6));
    if (fs::exists(kOld)) {
      tell(kOld, device_ + " " + rate);
    } else {
      fs::create_directory(group_);
      tell(fs::path(kUnified) / "cgroup.subtree_control", "+io");
      tell(group_ / "io.max", device_ + " rbps=" + rate);
      tell(group_ / "cgroup.procs", "0");
    }
  }
  ~ReadThrottle() {
    std::error_code left;
    if (fs::exists(kOld)) {
      std::ofstream(kOld) << device_ + " 0";
    } else {
      std::ofstream(fs::path(kUnified) / "cgroup.procs") << "0";
      fs::remove(group_, left);
    }
  }
  ReadThrottle(const ReadThrottle&) = delete;
  ReadThrottle& operator=(const ReadThrottle&) = delete;

 private:
  static void tell(const fs::path& file, const std::string& text) {
    std::ofstream setting(file);
    setting << text;
    setting.close();
    if (!setting)
      throw Error("the kernel does not throttle here: " + file.string() + " takes no '" + text + "'");
  }
  static constexpr char kOld[] = "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device";
  static constexpr char kUnified[] = "/sys/fs/cgroup";
  const fs::path group_ = fs::path(kUnified) / ("holdfast-bench-" + std::to_string(getpid()));
  std::string device_;  // "7:0"
};

std::uint64_t read_from(const std::string& device) {
  std::ifstream counters("/sys/class/block/" + device + "/stat");
  std::uint64_t reads = 0;
  std::uint64_t merged = 0;
  std::uint64_t sectors = 0;
  counters >> reads >> merged >> sectors;
  return sectors * 512;
}

double memory_of(const std::vector<std::string>& processes) {
  double kilobytes = 0;
  for (const std::string& process : processes) {
    std::ifstream mappings("/proc/" + process + "/smaps_rollup");
    for (std::string word; mappings >> word;) {
      double value = 0;
      if (word == "Pss:" && mappings >> value) kilobytes += value;
    }
  }
  return kilobytes * 1024;
}

class RanksOfOneStart {
 public:
  RanksOfOneStart(int count, bool apart, const fs::path& run, std::int64_t megabytes,
                  const fs::path& folder) {
    for (int rank = 0; rank < count; ++rank) {
      std::vector<std::string> words = rank_environment(rank, count, socket_, 1);
      if (apart) words.insert(words.end(), {"unshare", "--pid", "--fork", "--kill-child"});
      words.insert(words.end(), {fs::read_symlink("/proc/self/exe").string(), "--rank-of", run.string(),
                                 "--megabytes", std::to_string(megabytes)});
      ChildOptions options{.errors = folder / ("rank-" + std::to_string(rank))};
      if (rank == 0) options.inherited = socket_.descriptor();
      children_.push_back(std::make_unique<Child>(words, std::move(options)));
    }
    for (const auto& child : children_) {
      const std::string line = child->read_line();  // "here 123"
      processes_.push_back(line.substr(line.find(' ') + 1));
    }
  }
  // The answers of all, which work at the same time.
  std::vector<std::string> ask(const std::string& line) {
    std::vector<std::future<std::string>> asked;
    asked.reserve(children_.size());
    for (const auto& child : children_) {
      asked.push_back(std::async(std::launch::async, [one = child.get(), line] { return one->ask(line); }));
    }
    std::vector<std::string> answers;
    answers.reserve(asked.size());
    for (auto& answer : asked) answers.push_back(answer.get());
    return answers;
  }
  const std::vector<std::string>& processes() const { return processes_; }

 private:
  const ListeningSocket socket_;  // nobody else gets this port before rank 0 has taken it over
  std::vector<std::unique_ptr<Child>> children_;
  std::vector<std::string> processes_;
};

struct StartFigures {
  std::string name;
  int ranks = 1;
  bool apart = false;
  std::vector<double> files = {};  // read from the device
  std::vector<double> seconds = {};
  std::vector<double> memory = {};  // images
};

void measure(StartFigures& figures, const ReadOnceGiven& given, const test::LoopVolume& volume,
             std::uint64_t file) {
  const fs::path run = volume.path() / "run";
  const std::string device = fs::path(volume.device()).filename();
  const TemporaryFolder folder;
  RanksOfOneStart ranks(figures.ranks, figures.apart, run, given.megabytes, folder.path());
  const ReadThrottle throttle(device, given.rate);
  const std::uint64_t read_before = read_from(device);
  const double memory_before = memory_of(ranks.processes());
  std::atomic<bool> over{false};
  double peak = 0;
  std::thread watch([&] {
    while (!over) {
      peak = std::max(peak, memory_of(ranks.processes()));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  const auto began = std::chrono::steady_clock::now();
  const std::vector<std::string> answers = ranks.ask("resume");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  over = true;
  watch.join();
  for (const std::string& answer : answers) {
    if (!answer.starts_with("1 ")) throw Error("a rank did not resume from step 1: " + answer);
  }
  const auto size = static_cast<double>(file);
  figures.files.push_back(static_cast<double>(read_from(device) - read_before) / size);
  figures.seconds.push_back(took.count());
  figures.memory.push_back((peak - memory_before) / size);
}

int run(int argc, char** argv) {
  ReadOnceGiven given;
  CLI::App app(kHelp, "bench_read_once");
  app.add_option("--ranks", given.ranks, "processes (4)")->check(CLI::Range(2, 64));
  app.add_option("--megabytes", given.megabytes, "of the checkpoint (188)")->check(CLI::Range(1, 100'000));
  app.add_option("--rate", given.rate, "MB/s of the device (100)")->check(CLI::Range(1.0, 1e6));
  app.add_option("--repetitions", given.repetitions, "interleaved (3)")->check(CLI::Range(1, 1000));
  app.add_option("--output", given.output, "a JSON file for the figures, too");
  app.add_option("--rank-of", given.rank_of)->group("");
  if (!parsed(app, argc, argv)) return 0;
  if (!given.rank_of.empty()) {
    serve_rank(given.rank_of, given.megabytes * 1'000'000);
    return 0;
  }
  if (const std::string why = test::LoopVolume::why_not(test::VolumeKind::ext4); !why.empty()) {
    throw Error("no loop device here: " + why);
  }
  const auto room = static_cast<std::uint64_t>(given.megabytes) * 2'500'000 + (64u << 20);
  const test::LoopVolume volume({.bytes = room});
  std::uint64_t file = 0;
  {
    const TemporaryFolder folder;
    RanksOfOneStart one(1, false, volume.path() / "run", given.megabytes, folder.path());
    one.ask("resume");
    one.ask("save");
    for (const auto& entry : fs::directory_iterator(volume.path() / "run")) {
      if (entry.path().extension() == ".h5") file = std::max<std::uint64_t>(file, entry.file_size());
    }
  }
  if (file == 0) throw Error("the first life left no checkpoint");
  std::vector<StartFigures> all = {
      {.name = "1 rank"},
      {.name = std::to_string(given.ranks) + " ranks", .ranks = given.ranks},
      {.name = std::to_string(given.ranks) + " ranks apart", .ranks = given.ranks, .apart = true}};
  for (int i = 0; i < given.repetitions; ++i) {
    for (StartFigures& one : all) measure(one, given, volume, file);
  }
  std::printf("%.1f MB on ext4 on a loop device, reads at %.0f MB/s; medians of %d\n\n",
              static_cast<double>(file) / 1e6, given.rate, given.repetitions);
  std::printf("  %-16s %14s %12s %16s\n", "", "read, files", "resumed, s", "memory, images");
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const StartFigures& one : all) {
    std::printf("  %-16s %14.3f %12.2f %16.2f\n", one.name.c_str(), median(one.files), median(one.seconds),
                median(one.memory));
    rows.push_back({{"name", one.name},
                    {"ranks", one.ranks},
                    {"apart", one.apart},
                    {"files", one.files},
                    {"seconds", one.seconds},
                    {"images", one.memory}});
  }
  if (!given.output.empty()) {
    write_figures(given.output,
                  {{"bench", "read_once"}, {"bytes", file}, {"rate", given.rate}, {"rows", rows}});
  }
  return 0;
}

}}  // namespace holdfast::bench

int main(int argc, char** argv) {
  return holdfast::bench::ended_by("bench_read_once", [&] { return holdfast::bench::run(argc, argv); });
}
