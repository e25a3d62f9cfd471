#include "shell_seeds.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <new>

#include "simulation/shrinking.h"

namespace holdfast::simulation {
namespace {

constexpr unsigned kMostSeconds = 60;  // of real time, for one seed

// What the child process leaves.
struct Left {
  std::array<char, 60'000> broken;
  ShellCounts counts;
  bool over;
};

void add(ShellCounts& sum, const ShellCounts& one) {
  for (unsigned i = 0; i < kShellPromises; ++i) sum.promises[i] += one.promises[i];
  for (std::size_t i = 0; i < one.codes.size(); ++i) sum.codes[i] += one.codes[i];
  sum.attempts += one.attempts;
  sum.durable += one.durable;
  sum.steps += one.steps;
  sum.points += one.points;
  sum.seconds += one.seconds;
}

}  // namespace

ShellResult run_shell_seed(std::uint64_t seed, ShellFaults faults, bool trace) {
  void* const memory = mmap(nullptr, sizeof(Left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto& left = *static_cast<Left*>(memory);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kMostSeconds);
    if (!trace) {
      const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
      dup2(nowhere, STDERR_FILENO);
    }
    auto* const run = new ShellRun(seed, faults, trace);
    const std::string broken = run->run();
    std::strncpy(left.broken.data(), broken.c_str(), left.broken.size() - 1);
    left.counts = run->counts();
    left.over = true;
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ShellResult result{left.broken.data(), left.counts};
  if (!left.over) {
    result.broken = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                        ? std::string("real_time: the seed did not end in a minute")
                        : "crash: the process ended with status " + std::to_string(status);
  }
  munmap(memory, sizeof(Left));
  return result;
}

ShellSearch search_shell_seeds(std::uint64_t first, std::uint64_t count, bool shrinks) {
  ShellSearch search;
  for (std::uint64_t seed = first; search.seeds < count; ++seed) {
    ++search.seeds;
    const ShellFaults faults = shell_faults_of(seed);
    const ShellResult result = run_shell_seed(seed, faults);
    add(search.counts, result.counts);
    if (result.broken.empty()) continue;
    const Shrunk least = shrunk(faults, shrinks ? kShellFaults : 0, result.broken,
                                [&](ShellFaults without) { return run_shell_seed(seed, without).broken; });
    search.broken = least.line(seed, kShellFaults,
                               [](unsigned fault) { return name_of(static_cast<ShellFault>(fault)); });
    return search;
  }
  return search;
}

}  // namespace holdfast::simulation
