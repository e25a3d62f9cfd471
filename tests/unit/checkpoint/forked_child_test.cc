// A worker that was forked from a training process and runs destructors (returns through the Checkpointer's
// scope, throws, calls exit()) ends at once and leaves the run alone: the parent hears SIGTERM afterwards and
// commits, and its temporary files stand.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "rig.h"
#include "support/child_process.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

enum class Way { returns, throws, exits, returns_in_an_evaluation };

// The names of all that the run directory holds, once the parent's own threads have stopped changing them.
std::vector<std::string> listing(const std::filesystem::path& directory) {
  const auto names = [&] {
    std::vector<std::string> found;
    std::error_code gone;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory, gone)) {
      // The parent tells its progress whenever it likes.
      if (entry.path().extension() != ".json" || !entry.path().stem().string().ends_with(".progress"))
        found.push_back(entry.path().native());
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  std::vector<std::string> found = names();
  for (int alike = 0, tries = 0; alike < 10 && tries < 400; ++tries) {
    usleep(50'000);
    std::vector<std::string> now = names();
    alike = now == found ? alike + 1 : 0;
    found = std::move(now);
  }
  return found;
}

// The worker's exit code: 0; waits 15 s at most, since one that hangs would join the parent's threads.
bool ends_soon(pid_t worker) {
  for (int i = 0; i < 1500; ++i) {
    int status = 0;
    if (waitpid(worker, &status, WNOHANG) == worker) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    usleep(10'000);
  }
  kill(worker, SIGKILL);
  waitpid(worker, nullptr, 0);
  return false;
}

CheckpointerOptions options_in(const std::filesystem::path& directory) {
  CheckpointerOptions options;
  options.directory = directory;
  options.every = {};
  options.notices.cloud = false;
  return options;
}

pid_t fork_worker() {
  const pid_t worker = fork();
  if (worker == 0) alarm(20);
  return worker;
}

std::unique_ptr<MemorySource> static_source;
std::unique_ptr<Checkpointer> static_checkpointer;

// In a process of its own; 0: as promised.
int train_beside_a_worker(const std::filesystem::path& directory, Way way) {
  static_source = std::make_unique<MemorySource>();
  pid_t worker = -1;
  const auto begin = [&] {
    auto checkpointer = std::make_unique<Checkpointer>(*static_source, options_in(directory));
    checkpointer->resume();
    for (int i = 0; i < 4; ++i) {
      checkpointer->after_step(static_source->train());
      checkpointer->save().wait();
    }
    return checkpointer;
  };
  try {
    std::unique_ptr<Checkpointer> scope;
    (way == Way::exits ? static_checkpointer : scope) = begin();
    Checkpointer& checkpointer = way == Way::exits ? *static_checkpointer : *scope;
    const auto before = listing(directory);
    {
      std::unique_ptr<Checkpointer::EvaluationScope> evaluation;
      if (way == Way::returns_in_an_evaluation)
        evaluation = std::make_unique<Checkpointer::EvaluationScope>(checkpointer);
      worker = fork_worker();
      if (worker == 0) {
        if (way == Way::throws) throw std::runtime_error("a worker's error");
        if (way == Way::exits) exit(0);
        return 0;
      }
    }
    if (!ends_soon(worker)) return 2;
    if (listing(directory) != before) return 3;
    kill(getpid(), SIGTERM);
    bool stop = false;
    for (int i = 0; i < 2000 && !stop; ++i) {
      stop = checkpointer.after_step(static_source->train()).stop;
      usleep(5'000);
    }
    if (!stop) return 4;
    if (checkpointer.finish() != 75) return 5;
    return checkpointer.last_durable().step == static_source->step() ? 0 : 6;
  } catch (const std::runtime_error&) {
    return worker == 0 ? 0 : 7;
  }
}

void expect_left_alone(Way way) {
  const TemporaryFolder folder;
  ChildProcess parent([&] { return train_beside_a_worker(folder.path() / "run", way); });
  const ChildResult result = parent.wait();
  EXPECT_EQ(result.exit_code, 0)
      << "2: the worker hangs or dies; 3: it changed the run directory; 4: the parent does not hear SIGTERM; "
         "5, 6: it does not commit\n"
      << result.output;
}

TEST(ForkedChild, ReturnsThroughTheScope) { expect_left_alone(Way::returns); }
TEST(ForkedChild, ThrowsThroughTheScope) { expect_left_alone(Way::throws); }
TEST(ForkedChild, ExitsBesideAStaticCheckpointer) { expect_left_alone(Way::exits); }
TEST(ForkedChild, ReturnsInAnEvaluation) { expect_left_alone(Way::returns_in_an_evaluation); }

TEST(ForkedChild, FinishIsRefused) {
  const TemporaryFolder folder;
  ChildProcess parent([&] {
    MemorySource source;
    Checkpointer checkpointer(source, options_in(folder.path() / "run"));
    checkpointer.resume();
    checkpointer.after_step(source.train());
    const pid_t worker = fork_worker();
    if (worker == 0) {
      try {
        checkpointer.finish();
      } catch (const UsageError&) {
        return 0;
      }
      return 1;
    }
    return ends_soon(worker) && checkpointer.finish() == 0 ? 0 : 2;
  });
  EXPECT_EQ(parent.wait().exit_code, 0);
}

}}  // namespace holdfast::test
