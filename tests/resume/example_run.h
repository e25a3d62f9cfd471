// The example program as the resume tests drive it: small, quick, and compared step by step.
//
// Threads: one thread per object.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

inline std::string program(const std::string& name) {
  const std::filesystem::path built = HOLDFAST_BIN_DIR;
  if (std::filesystem::exists(built)) return built / name;
  // bench/gpu_pack has moved programs and tests.
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin" / name;
}

// The text between `key` and the next `"`, `,`, `}` or blank: enough for our own JSON lines and last lines.
inline std::string value_of(const std::string& line, const std::string& key) {
  const auto at = line.find(key);
  if (at == std::string::npos) return "";
  const auto begin = at + key.size();
  return line.substr(begin, line.find_first_of(",} \"", begin) - begin);
}

// Every loss of a metrics file, as text: its shortest decimal gives the bits back. A step that appears again
// must have equal bits.
struct Losses {
  std::map<std::int64_t, std::string> by_step;
  std::int64_t repeated = 0;
};

inline Losses read_losses(const std::filesystem::path& metrics) {
  Losses losses;
  for (const auto& line : lines_of(read_text(metrics))) {
    if (line.empty() || line.back() != '}') continue;  // torn by a kill, and closed by the next attempt
    const std::int64_t step = std::stoll(value_of(line, "\"step\":"));
    const std::string loss = value_of(line, "\"loss\":");
    const auto [at, fresh] = losses.by_step.emplace(step, loss);
    if (fresh) continue;
    ++losses.repeated;
    EXPECT_EQ(at->second, loss) << "step " << step << " was computed again with other bits";
  }
  return losses;
}

// One run: a directory, a metrics file, and the arguments that every attempt gets.
class ExampleRun {
 public:
  explicit ExampleRun(std::vector<std::string> arguments, std::string metrics = "metrics.jsonl")
      : arguments_(std::move(arguments)),
        metrics_(std::move(metrics)),
        folder_(std::make_unique<TemporaryFolder>()) {}

  std::filesystem::path directory() const { return folder_->path() / "run"; }
  std::filesystem::path metrics() const { return folder_->path() / metrics_; }

  std::vector<std::string> command(const std::vector<std::string>& extra = {}) const {
    std::vector<std::string> words = {program("resnet50_cifar10"), "--checkpoint-dir", directory().string(),
                                      "--metrics", metrics().string()};
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    words.insert(words.end(), extra.begin(), extra.end());
    return words;
  }
  std::unique_ptr<Subprocess> start(const std::vector<std::string>& extra = {},
                                    std::map<std::string, std::string> environment = {}) const {
    environment.emplace("OMP_NUM_THREADS", "1");
    return std::make_unique<Subprocess>(command(extra), environment);
  }
  Ended finish(const std::vector<std::string>& extra = {},
               const std::map<std::string, std::string>& environment = {}) const {
    return start(extra, environment)->wait();
  }

  // Copies its directory and its metrics: tests of a suite share a first life.
  void go_on_from(const ExampleRun& other) const {
    std::filesystem::copy(other.folder_->path(), folder_->path(), std::filesystem::copy_options::recursive);
  }

  std::int64_t steps_logged() const {
    const std::string text = read_text(metrics());
    return std::count(text.begin(), text.end(), '\n');
  }
  std::vector<std::filesystem::path> checkpoints() const {  // oldest first
    std::vector<std::filesystem::path> files;
    if (!std::filesystem::exists(directory())) return files;
    for (const auto& entry : std::filesystem::directory_iterator(directory())) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-") && name.ends_with(".h5")) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

 private:
  std::vector<std::string> arguments_;
  std::string metrics_;
  std::unique_ptr<TemporaryFolder> folder_;
};

// Small enough that a step takes a few milliseconds: 16 updates of 16 pictures an epoch, where `more` says
// nothing else.
inline std::vector<std::string> small(const std::vector<std::string>& more = {},
                                      const std::string& width = "2") {
  std::vector<std::string> words = {"--data", "synthetic:256", "--width", width};
  if (std::find(more.begin(), more.end(), "--batch-size") == more.end()) {
    words.insert(words.end(), {"--batch-size", "16"});
  }
  words.insert(words.end(), {"--threads", "1", "--lr", "0.05"});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace holdfast::test
