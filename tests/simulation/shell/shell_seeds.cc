#include "shell_seeds.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <exception>
#include <new>

namespace holdfast::simulation {
namespace {

constexpr unsigned kMostSeconds = 60;  // of real time, for one seed

// What the child process leaves.
struct Left {
  std::array<char, 60'000> broken;
  ShellCounts counts;
  bool over;
};

std::string promise_of(const std::string& broken) { return broken.substr(0, broken.find(':')); }

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
    ShellFaults faults = shell_faults_of(seed);
    ShellResult result = run_shell_seed(seed, faults);
    for (unsigned i = 0; i < kShellPromises; ++i) search.counts.promises[i] += result.counts.promises[i];
    for (unsigned i = 0; i < 256; ++i) search.counts.codes[i] += result.counts.codes[i];
    search.counts.attempts += result.counts.attempts;
    search.counts.durable += result.counts.durable;
    search.counts.steps += result.counts.steps;
    search.counts.points += result.counts.points;
    search.counts.seconds += result.counts.seconds;
    if (result.broken.empty()) continue;
    for (bool again = shrinks; again;) {
      again = false;
      for (unsigned fault = 0; fault < kShellFaults; ++fault) {
        const ShellFaults without = faults & ~(ShellFaults{1} << fault);
        if (without == faults) continue;
        ShellResult less = run_shell_seed(seed, without);
        if (promise_of(less.broken) != promise_of(result.broken)) continue;
        faults = without;
        result = std::move(less);
        again = true;
      }
    }
    search.broken = result.broken + " (HOLDFAST_TEST_SEED=" + std::to_string(seed) + ":" +
                    std::to_string(faults) + " repeats it; faults:";
    for (unsigned fault = 0; fault < kShellFaults; ++fault) {
      if ((faults >> fault & 1U) != 0)
        search.broken += std::string(" ") + name_of(static_cast<ShellFault>(fault));
    }
    search.broken += ")";
    return search;
  }
  return search;
}

}  // namespace holdfast::simulation
