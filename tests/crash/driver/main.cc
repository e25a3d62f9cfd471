// A training program without LibTorch, to be killed: the real Checkpointer on a real directory around a
// pseudo-training that is deterministic to the bit.
//
//   checkpointer_driver DIRECTORY STEPS [every=N] [kill-before=N] [pace-us=N] [elements=N] [wait]
//
// Prints `started step=…` after the resume and `acknowledged step=…` for each save it waited for (`wait`), at
// the end `complete step=… state=…` or `interrupted step=… state=… checkpoint=…`. With kill-before it sends
// itself SIGKILL just before the N-th operation that could change the disk.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "support/fault_file_system.h"
#include "support/memory_source.h"

namespace {

using namespace holdfast;

std::map<std::string, std::int64_t> options_of(int count, char** arguments) {
  std::map<std::string, std::int64_t> options;
  for (int i = 3; i < count; ++i) {
    const std::string text = arguments[i];
    const auto equals = text.find('=');
    const auto value =
        equals == std::string::npos ? std::optional<std::int64_t>(1) : parse_int(text.substr(equals + 1));
    if (!value) throw UsageError("what is " + text + "?");
    options[text.substr(0, equals)] = *value;
  }
  return options;
}

int train(const std::string& directory, std::int64_t steps, std::map<std::string, std::int64_t> given) {
  test::FaultFileSystem disk(FileSystem::real());
  if (const std::int64_t kill_before = given["kill-before"]; kill_before > 0) {
    disk.set_hook([&disk, kill_before](const test::Operation& operation) {
      if (operation.mutating && disk.mutation_count() + 1 >= kill_before) std::raise(SIGKILL);
    });
  }
  test::MemorySource source(
      {.elements = given.contains("elements") ? static_cast<std::size_t>(given["elements"]) : 1000});
  CheckpointerOptions options;
  options.directory = directory;
  if (given.contains("every")) {
    options.every = {SaveEvery::steps(given["every"])};
  } else {
    options.every = {};
  }
  options.file_system = &disk;
  Checkpointer checkpointer(source, options);
  checkpointer.resume();
  std::printf("started step=%lld\n", static_cast<long long>(source.step()));
  std::fflush(stdout);
  while (source.step() < steps && !checkpointer.tick()) {
    const StepReport report = source.train();
    if (given["pace-us"] > 0) std::this_thread::sleep_for(std::chrono::microseconds(given["pace-us"]));
    const Decision decision = checkpointer.after_step(report);
    if (decision.saved && given.contains("wait") && checkpointer.save().wait() == SaveStatus::durable) {
      std::printf("acknowledged step=%lld\n", static_cast<long long>(source.step()));
      std::fflush(stdout);
    }
    if (decision.stop) break;
  }
  const int code = checkpointer.finish();
  std::printf("%s step=%lld state=%s checkpoint=%s\n", code == 0 ? "complete" : "interrupted",
              static_cast<long long>(source.step()), to_hex(checkpointer.state_digest()).c_str(),
              checkpointer.last_durable().checkpoint.c_str());
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 3) throw UsageError("checkpointer_driver DIRECTORY STEPS [name=value]...");
    return train(arguments[1], std::atoll(arguments[2]), options_of(count, arguments));
  } catch (const Error& error) {
    std::fprintf(stderr, "checkpointer_driver: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
