#include "programs.h"

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "../shared/child.h"
#include "../shared/root.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::uintmax_t size_of(const fs::path& file) {
  std::error_code missing;
  const auto bytes = fs::file_size(file, missing);
  return missing ? 0 : bytes;
}

}  // namespace

void Programs::forget() const {
  fs::remove_all(folder() / "run");
  fs::remove(folder() / "peer.pt");
}

Start Programs::ours(int steps, const std::string& shell) const {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "resnet50_cifar10";
  const fs::path metrics = folder() / "metrics";
  Words command;
  if (!shell.empty()) command = {"/bin/sh", "-c", shell + R"(; exec "$0" "$@" >&2)"};
  for (const std::string& word :
       {program.string(), std::string("--data"), work_.data, std::string("--width"), work_.width,
        std::string("--stem"), std::string("imagenet"), std::string("--batch-size"), std::string("128"),
        std::string("--no-eval"), std::string("--no-cuda"),  // nor does the peer
        std::string("--checkpoint-dir"), (folder() / "run").string(), std::string("--metrics"),
        metrics.string(), std::string("--steps"), std::to_string(steps)}) {
    command.push_back(word);
  }
  command.insert(command.end(), work_.more.begin(), work_.more.end());
  const auto before = size_of(metrics);
  Start start{.begin = Clock::now()};
  Child child(command, {.errors = errors()});
  while (size_of(metrics) == before) {
    if (child.ended()) throw Error("the example made no step");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  start.seconds = seconds_since(start.begin);
  child.finish();
  return start;
}

// It writes a line when its step is done.
Start Programs::peer() const {
  const fs::path root = root_folder();
  const fs::path python = root / ".deps/peers/bin/python";
  if (!fs::exists(python)) throw UsageError("no peers; run bench/peers/install first");
  Start start{.begin = Clock::now()};
  Child child({python.string(), (root / "bench/peers/start_up.py").string(), "--data", work_.data, "--width",
               work_.width, "--checkpoint", (folder() / "peer.pt").string()},
              {.errors = errors()});
  child.read_line();
  start.seconds = seconds_since(start.begin);
  child.finish();
  return start;
}

}  // namespace holdfast::bench
