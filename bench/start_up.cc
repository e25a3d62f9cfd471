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

#include "median.h"

namespace {

using holdfast::bench::median;

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int output = -1;
};

Child start(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const auto& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  Child child;
  const int failed = ::posix_spawn(&child.pid, words[0], &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  child.output = ends[0];
  if (failed != 0) throw std::runtime_error("cannot start " + command[0]);
  return child;
}

void finish(const Child& child, bool must_succeed) {
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  ::close(child.output);
  if (must_succeed && status != 0) throw std::runtime_error("a program failed; run it by hand to see why");
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The peer says so on standard output when its step is done.
double time_peer(const std::vector<std::string>& command) {
  const auto begin = Clock::now();
  const Child child = start(command);
  char byte = 0;
  const bool said = ::read(child.output, &byte, 1) == 1;
  const double seconds = seconds_since(begin);
  finish(child, true);
  if (!said) throw std::runtime_error("the peer made no step");
  return seconds;
}

// Ours writes one more line of metrics.
double time_ours(const std::vector<std::string>& command, const fs::path& metrics) {
  const auto size = [&] {
    std::error_code missing;
    const auto bytes = fs::file_size(metrics, missing);
    return missing ? 0 : bytes;
  };
  const auto before = size();
  const auto begin = Clock::now();
  const Child child = start(command);
  while (size() == before) {
    if (::waitpid(child.pid, nullptr, WNOHANG) != 0) throw std::runtime_error("the example made no step");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const double seconds = seconds_since(begin);
  finish(child, true);
  return seconds;
}

int run(int repetitions, const std::string& data, const std::string& width) {
  const fs::path bin = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path root = HOLDFAST_SOURCE_DIR;
  const fs::path python = root / ".deps/peers/bin/python";
  if (!fs::exists(python)) throw std::runtime_error("no peers; run bench/peers/install first");
  std::string pattern = (fs::temp_directory_path() / "start-up-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  const fs::path folder = pattern;

  const auto ours = [&](const fs::path& directory, const std::string& steps) {
    return std::vector<std::string>{(bin / "resnet50_cifar10").string(),
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
                                    (folder / "metrics").string(),
                                    "--steps",
                                    steps};
  };
  const auto peer = [&](const fs::path& checkpoint) {
    return std::vector<std::string>{python.string(), (root / "bench/peers/start_up.py").string(),
                                    "--data",        data,
                                    "--width",       width,
                                    "--checkpoint",  checkpoint.string()};
  };
  std::vector<double> ours_fresh, ours_resumed, peer_fresh, peer_resumed;
  for (int i = 0; i <= repetitions; ++i) {  // the first round warms the page cache
    fs::remove_all(folder / "run");
    fs::remove(folder / "peer.pt");
    const double times[] = {
        time_ours(ours(folder / "run", "1"), folder / "metrics"), time_peer(peer(folder / "peer.pt")),
        time_ours(ours(folder / "run", "2"), folder / "metrics"), time_peer(peer(folder / "peer.pt"))};
    if (i == 0) continue;
    ours_fresh.push_back(times[0]);
    peer_fresh.push_back(times[1]);
    ours_resumed.push_back(times[2]);
    peer_resumed.push_back(times[3]);
  }
  fs::remove_all(folder);
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
