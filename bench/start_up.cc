// From process start to the first finished training step: our example against bench/peers/start_up.py, which
// does the same work on the same data in Python. Fresh, and resumed from a checkpoint.
//
//   bench/peers/install                        once
//   build/release/bin/bench_start_up [REPETITIONS] [DATA] [WIDTH]
//
// The four programs take turns; printed are medians and our share of the peer's time.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "shared/child.h"
#include "shared/median.h"
#include "shared/root.h"
#include "shared/temporary_folder.h"

namespace {

using holdfast::bench::Child;
using holdfast::bench::median;
using holdfast::bench::TemporaryFolder;
using Words = std::vector<std::string>;

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The peer writes a line when its step is done.
double time_peer(const Words& command, const fs::path& errors) {
  const auto begin = Clock::now();
  Child child(command, {.errors = errors});
  child.read_line();
  const double seconds = seconds_since(begin);
  child.finish();
  return seconds;
}

// Ours writes one more line of metrics.
double time_ours(const Words& command, const fs::path& metrics, const fs::path& errors) {
  const auto size = [&] {
    std::error_code missing;
    const auto bytes = fs::file_size(metrics, missing);
    return missing ? 0 : bytes;
  };
  const auto before = size();
  const auto begin = Clock::now();
  Child child(command, {.errors = errors});
  while (size() == before) {
    if (child.ended()) throw std::runtime_error("the example made no step");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double seconds = seconds_since(begin);
  child.finish();
  return seconds;
}

int run(int repetitions, const std::string& data, const std::string& width) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path root = holdfast::bench::root_folder();
  const fs::path python = root / ".deps/peers/bin/python";
  if (!fs::exists(python)) throw std::runtime_error("no peers; run bench/peers/install first");
  const TemporaryFolder folder;
  const fs::path errors = folder.path() / "errors";

  const auto ours = [&](const fs::path& directory, const std::string& steps) {
    return Words{(bin / "resnet50_cifar10").string(),
                 "--data",
                 data,
                 "--width",
                 width,
                 "--stem",
                 "imagenet",
                 "--batch-size",
                 "128",
                 "--no-eval",
                 "--checkpoint-dir",
                 directory.string(),
                 "--metrics",
                 (folder.path() / "metrics").string(),
                 "--steps",
                 steps};
  };
  const auto peer = [&](const fs::path& checkpoint) {
    return Words{python.string(), (root / "bench/peers/start_up.py").string(),
                 "--data",        data,
                 "--width",       width,
                 "--checkpoint",  checkpoint.string()};
  };
  std::vector<double> ours_fresh, ours_resumed, peer_fresh, peer_resumed;
  for (int i = 0; i <= repetitions; ++i) {  // the first round warms the page cache
    fs::remove_all(folder.path() / "run");
    fs::remove(folder.path() / "peer.pt");
    const auto once = [&](const char* steps) {
      return std::pair(time_ours(ours(folder.path() / "run", steps), folder.path() / "metrics", errors),
                       time_peer(peer(folder.path() / "peer.pt"), errors));
    };
    const auto fresh = once("1");
    const auto resumed = once("2");
    if (i == 0) continue;
    ours_fresh.push_back(fresh.first);
    peer_fresh.push_back(fresh.second);
    ours_resumed.push_back(resumed.first);
    peer_resumed.push_back(resumed.second);
  }
  const auto print = [](const char* what, double mine, double theirs) {
    std::printf("%-8s ours %.3f s   Python %.3f s   ratio %.2f\n", what, mine, theirs, mine / theirs);
  };
  std::printf("process start to the first finished step, width %s, medians of %d\n", width.c_str(),
              repetitions);
  print("fresh", median(ours_fresh), median(peer_fresh));
  print("resumed", median(ours_resumed), median(peer_resumed));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 9, argc > 2 ? argv[2] : "synthetic",
               argc > 3 ? argv[3] : "64");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_start_up: %s\n", error.what());
    return 1;
  }
}
